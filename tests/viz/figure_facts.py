"""What each figure's alt text must say, computed here in another way than the figure's data."""

import json
import statistics
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from nanoengine import LLM, SamplingParams
from nanoengine.viz.gallery import runs

DATA = Path(__file__).parent.parent.parent / "figures" / "data"
SIZE = 4
GIB, MIB = 1 << 30, 1 << 20


def read(name: str) -> dict[str, Any]:
    """A JSON file of figures/data."""
    content: dict[str, Any] = json.loads((DATA / name).read_text())
    return content


def slot_mapping() -> list[str]:
    """The article's example: positions 4..9 in blocks 2 and 5."""
    slots = [2 * SIZE + i for i in range(4)] + [5 * SIZE, 5 * SIZE + 1]
    return [f"go to slots {slots}", "token 6 to slot 10", "4 tokens are cached"]


def packed_prefill() -> list[str]:
    """Ten tokens, four of them cached, and three fresh ones."""
    queries, keys = [len(runs.TEN) - SIZE, len(runs.THREE)], [len(runs.TEN), len(runs.THREE)]
    return [
        f"cu_seqlens_q {[0, *accumulate(queries)]}",
        f"cu_seqlens_k {[0, *accumulate(keys)]}",
        f"positions {[*range(4, 10), *range(3)]}",
    ]


def written_slots(llm: LLM) -> Callable[[], set[int]]:
    """A function that tells which slots of the cache's memory are in use: those that are not 0."""
    cache = llm.engine.runner.kv_cache
    cache.zero_()
    return lambda: set(
        cache[0, 0].flatten(0, 1).abs().sum(dim=(-1, -2)).nonzero().flatten().tolist()
    )


def kv_memory() -> list[str]:
    """The slots whose memory changed in the step, seen in the cache itself."""
    params = SamplingParams(temperature=0, max_tokens=runs.GROWING_TOKENS, ignore_eos=True)
    with LLM(device="cpu", kvcache_block_size=SIZE, num_kvcache_blocks=runs.GROWING_BLOCKS,
             overlap=False) as llm:  # fmt: skip
        used = written_slots(llm)
        names = [llm.engine.add_request(prompt, params) for prompt in runs.GROWING]
        seqs = [llm.engine.requests[name].seq for name in names]
        for number in range(runs.GROWING_TOKENS):
            before, tables = used(), [list(seq.block_table) for seq in seqs]
            llm.engine.step()
            if number > 4 and [seq.block_table for seq in seqs] != tables:
                break
    written = sorted(used() - before)
    return [f"wrote slots {written}", f"left the other {len(before)} used slots"]


def kv_tensor() -> list[str]:
    """K and V of each layer of the classroom model."""
    with runs.engine() as llm:
        layers = llm.engine.model_config.num_hidden_layers
    return [f"each of {layers} layers", f"all {2 * layers} slices"]


def kv_carving() -> list[str]:
    """The formula, on the numbers of the docstring of num_kvcache_blocks."""
    free = int(0.9 * 8 * GIB) - 2 * GIB - (1800 - 1300) * MIB
    blocks = free // (28 * MIB)
    return [f"{blocks} blocks of 28.0 MiB fit", f"{blocks * 28 * MIB / GIB:.2f} GiB in all"]


def prefix_sharing() -> list[str]:
    """Distinct beginnings of the prompts, in whole blocks; and what of them was there before."""
    with runs.engine() as llm:
        tokenizer = llm.engine.tokenizer
        assert tokenizer is not None
        prompts = [tokenizer.encode(text) for text in runs.SHARING]
    paths = [[tuple(p[: end + SIZE]) for end in range(0, len(p), SIZE)] for p in prompts]
    known: set[tuple[int, ...]] = set()
    found = []
    for prompt, path in zip(prompts, paths, strict=True):
        found.append(
            SIZE * sum(beginning in known for beginning in path if len(beginning) % SIZE == 0)
        )
        known |= set(path)
        assert len(prompt) > found[-1]
    letters = ", ".join(
        f"{letter} {n} of {len(p)}" for letter, n, p in zip("ABC", found, prompts, strict=True)
    )
    return [
        f"{sum(map(len, paths))} entries", f"take {len(known)} blocks",
        f"Tokens found in the cache: {letters}",
    ]  # fmt: skip


def overlap() -> list[str]:
    """Host and device in turn, or the device without a pause."""
    peer = read("nano_vllm_decode_profile_h200.json")["nano-vllm"]
    device = peer["gpu_busy_ms"] / 32
    host = peer["step_ms_unprofiled"] - device
    return [
        f"waits {host:.2f} ms before each step", f"read after {4 * (host + device):.1f} ms;",
        "it waits 0.00 ms", f"read after {host + 4 * device:.1f} ms.", "Simulated",
    ]  # fmt: skip


def five_steps() -> list[str]:
    """Borders from the prompts' lengths, the tokens from a run without records."""
    with runs.engine() as llm:
        outs = llm.generate(runs.RUN_PROMPTS, runs.greedy(1), use_tqdm=False)
        config = llm.engine.model_config
    borders = [0, *accumulate(len(out.prompt_token_ids) for out in outs)]
    rows = borders[-1]
    return [
        f"cu_seqlens_q {borders}", f"{rows} rows, hidden states [{rows}, {config.hidden_size}]",
        f"last row [2, {config.vocab_size}]",
        f"on rank 0 alone {[out.token_ids[0] for out in outs]}",
        *(f"row {row} {out.text!r}" for row, out in enumerate(outs)),
    ]  # fmt: skip


def call_chain() -> list[str]:
    """The recorded times, added up here."""
    step = read("step_calls_cpu.json")
    calls = step["calls"]
    total = max(call["end"] for call in calls)
    model = next(c["end"] - c["start"] for c in calls if c["name"] == "forward")
    return [
        f"takes {1e3 * total:.2f} ms", f"model.forward takes {model / total:.0%}", step["device"],
        "LLMEngine.step, Scheduler.schedule", "BlockManager.hash_blocks 2 times",
    ]  # fmt: skip


def bucket_37() -> list[str]:
    """The smallest of the article's buckets that holds 37."""
    bucket = min(b for b in (1, 2, 4, 8, *range(16, 513, 16)) if b >= 37)
    return [
        f"37 sequences in the graph of bucket {bucket}", f"{bucket - 37} rows of padding",
        f"Rows 37 to {bucket - 1}: slot -1, context length 0",
    ]  # fmt: skip


def waste(buckets: list[int], largest: int) -> tuple[float, float]:
    """Mean and worst part of padded rows over batches of 1 to `largest`."""
    shares = [1 - batch / min(b for b in buckets if b >= batch) for batch in range(1, largest + 1)]
    return sum(shares) / largest, max(shares)


def padding_waste() -> list[str]:
    """Both means and worst cases, batch by batch."""
    ours = waste([1, 2, 4, 8, *range(16, 513, 16)], 512)
    doubling = waste([2**i for i in range(10)], 512)
    return [
        f"engine): 36 graphs, {ours[0]:.0%} on average, at worst {ours[1]:.0%} at a batch of 17",
        f"10 graphs, {doubling[0]:.0%} on average, at worst {doubling[1]:.0%} at a batch of 257",
    ]


def replay() -> list[str]:
    """The same kernels take as long as the replay; the rest of the eager time is launching."""
    once = read("graphs_h200.json")["eager_and_graph"]
    run = next(run for run in once["runs"] if run["tokens"] == 128)
    return [
        f"250 launches, 250 kernels, {run['eager_ms']:.2f} ms",
        f"computes {run['graph_ms'] / run['eager_ms']:.0%} of it",
        f"1 launch, 250 kernels, {run['graph_ms']:.2f} ms", "recorded on an NVIDIA H200",
    ]  # fmt: skip


def tensor_parallel() -> list[str]:
    """Half of the rows or columns of every weight, from the model's config."""
    with runs.engine() as llm:
        c = llm.engine.model_config
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    hidden, inner = c.hidden_size, c.intermediate_size
    return [
        f"qkv_proj [{q + 2 * kv}, {hidden}] is cut by rows, rank 0 keeps {(q + 2 * kv) // 2} x",
        f"o_proj [{hidden}, {q}] is cut by columns, rank 0 keeps {hidden} x {q // 2}",
        f"gate_up_proj [{2 * inner}, {hidden}] is cut by rows, rank 0 keeps {inner} x {hidden}",
        f"down_proj [{hidden}, {inner}] is cut by columns, rank 0 keeps {hidden} x {inner // 2}",
        f"lm_head [{c.vocab_size}, {hidden}] is cut by rows, rank 0 keeps {c.vocab_size // 2} x",
    ]


def two_ranks() -> list[str]:
    """An embedding and two sums a layer, the gathered logits and the tokens; recorded times."""
    with runs.engine() as llm:
        layers = llm.engine.model_config.num_hidden_layers
    step = read("rank_spans_cpu.json")
    spans = step["spans"]

    def took(rank: int, *whats: str) -> str:
        mine = [s for s in spans if s["rank"] == rank and s["what"] in whats]
        return f"{sum(s['end'] - s['start'] for s in mine):.0f} us"

    together = took(0, "allreduce", "gather", "broadcast").removesuffix(" us")
    return [
        f"{together} of them in {1 + 2 * layers + 2} collectives", step["device"],
        f"writes the message in {took(0, 'write')} and runs its part in {took(0, 'run')}",
        f"rank 1 reads it in {took(1, 'read')} and runs its part in {took(1, 'run')}",
    ]  # fmt: skip


def benchmark() -> list[str]:
    """Medians and ranges from every recorded result; the floor from its two ceilings."""
    found = [json.loads(path.read_text()) for path in DATA.glob("bench_qwen3-0.6b_h200_*.json")]
    said = []
    for result in found:
        runs_ = sorted(result["output_tok_s"]["runs"])
        median = statistics.median(runs_)
        said.append(f"{result['engine']} {median:,.0f} ({runs_[0]:,.0f} to {runs_[-1]:,.0f})")
    floor = found[0]["floor"]
    seconds = floor["decode_s"] + floor["prefill_flops"] / floor["matmul_flops_per_s"]
    return [*said, f"floor allows {found[0]['output_tokens'] / seconds:,.0f}", "NVIDIA H200"]


def step_times() -> list[str]:
    """The floor as bytes at the copy rate: weights once, 641 tokens of K and V for each row."""
    peer = read("bench_qwen3-0.6b_h200_nano-vllm.json")["floor"]
    said = []
    for step in read("graphs_h200.json")["one_graph_a_step"]["steps"]:
        rows, context, ms = step["rows"], step["context"], step["ms"]
        read_bytes = peer["decode_weight_bytes"] + rows * context * peer["kv_bytes_per_token"]
        floor = 1e3 * read_bytes / peer["copy_bytes_per_s"]
        if rows in (1, 32, 256):
            said.append(f"{rows}: {ms:.3g} ms, floor {floor:.3g} ms ({floor / ms:.0%})")
    return [*said, "NVIDIA H200"]


FACTS: dict[str, Callable[[], list[str]]] = {
    "five_steps": five_steps,
    "call_chain": call_chain,
    "bucket_37": bucket_37,
    "padding_waste": padding_waste,
    "replay": replay,
    "tensor_parallel": tensor_parallel,
    "two_ranks": two_ranks,
    "benchmark": benchmark,
    "step_times": step_times,
    "slot_mapping": slot_mapping,
    "packed_prefill": packed_prefill,
    "kv_memory": kv_memory,
    "kv_tensor": kv_tensor,
    "kv_carving": kv_carving,
    "prefix_sharing": prefix_sharing,
    "overlap": overlap,
}
