"""Where the time of a GPU run goes: the article's benchmark, decode steps, prefill, a profile.

Run `python tests/gpu/bench_decode.py [shape] [out.json]` from the repository's root; it is a
measuring script, not a test.
"""

import json
import random
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from gpu.conftest import write_model  # noqa: E402

from nanoengine import LLM, SamplingParams  # noqa: E402

SHAPES = {
    "0.6b": {"num_hidden_layers": 28, "vocab_size": 151_936},
    "4b": {"num_hidden_layers": 36, "vocab_size": 151_936, "hidden_size": 2560,
           "intermediate_size": 9728, "num_attention_heads": 32},
    "8b": {"num_hidden_layers": 36, "vocab_size": 151_936, "hidden_size": 4096,
           "intermediate_size": 12288, "num_attention_heads": 32, "tie_word_embeddings": False},
}  # fmt: skip
GROUPS = {
    "attention": ("_decode", "_merge", "_prefill"), "norm": ("_add_rms_norm",),
    "rope": ("_rotate",), "sampler": ("_block_weights", "_pick_token"), "silu": ("_silu",),
    "products (ours)": ("_gemv", "_skinny", "_split_k"),
    "products (library)": ("nvjet", "gemm", "gemv", "cutlass", "splitK"),
    "inputs": ("_stage", "_resolve", "Memcpy"),
}  # fmt: skip


def fixed(count, prompt, output, seed=0):
    rng = random.Random(seed)
    texts = [[rng.randrange(10_000) for _ in range(prompt)] for _ in range(count)]
    return texts, SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=output)


def seconds(llm, texts, params):
    torch.cuda.synchronize()
    start = time.perf_counter()
    llm.generate(texts, params, use_tqdm=False)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def article(llm, seed):
    """The published workload; seed 0 draws the published token ids, others the same lengths."""
    rng = random.Random(0)
    texts = [[rng.randint(0, 10000) for _ in range(rng.randint(100, 1024))] for _ in range(256)]
    params = [
        SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=rng.randint(100, 1024))
        for _ in range(256)
    ]
    if seed:
        fresh = random.Random(seed)
        texts = [[fresh.randint(0, 10000) for _ in text] for text in texts]
    took = seconds(llm, texts, params)
    return sum(p.max_tokens for p in params) / took


def step_ms(llm, batch, context, seed):
    prompt = context - 128
    few = seconds(llm, *fixed(batch, prompt, 1, seed))
    return (seconds(llm, *fixed(batch, prompt, 257, seed + 1)) - few) / 256 * 1e3


def profile(llm, batch, context, steps=20):
    """Microseconds a step by group of kernels, and the rest of the wall time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    engine = llm.engine
    texts, params = fixed(batch, context, steps + 40, seed=9)
    for text in texts:
        engine.add_request(text, params)
    for _ in range(12):
        engine.step()
    torch.cuda.synchronize()
    with record(activities=[ProfilerActivity.CUDA]) as seen:
        start = time.perf_counter()
        for _ in range(steps):
            engine.step()
        torch.cuda.synchronize()
        wall = time.perf_counter() - start
    engine.reset()
    total: dict[str, float] = {"launches": 0.0}
    for event in seen.key_averages():
        if event.self_device_time_total:
            group = next((g for g, words in GROUPS.items()
                          if any(word in event.key for word in words)), "other")  # fmt: skip
            total[group] = total.get(group, 0.0) + event.self_device_time_total / steps
            total["launches"] += event.count / steps
            if group == "other":
                print("   other:", event.key[:90], round(event.self_device_time_total / steps, 1))
    busy = sum(v for k, v in total.items() if k != "launches")
    return {k: round(v, 1) for k, v in total.items()} | {
        "busy": round(busy, 1), "wall": round(wall / steps * 1e6, 1),
    }  # fmt: skip


def host_ms(llm, batch, context, steps=30):
    """Milliseconds of the host's own work a step: launching and book-keeping, no waiting."""
    engine = llm.engine
    texts, params = fixed(batch, context, steps + 40, seed=11)
    for text in texts:
        engine.add_request(text, params)
    for _ in range(12):
        engine.step()
    spent = 0.0
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        engine.step()
        spent += time.perf_counter() - start
    engine.reset()
    return spent / steps * 1e3


def main():
    shape = sys.argv[1] if len(sys.argv) > 1 else "0.6b"
    out = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "shape": shape}

    def note(name, value):
        out[name] = value
        print(f"{name}: {value}", flush=True)
        if len(sys.argv) > 2:
            Path(sys.argv[2]).write_text(json.dumps(out, indent=1))

    folder = write_model(Path(tempfile.mkdtemp()) / shape, **SHAPES[shape])
    start = time.perf_counter()
    llm = LLM(folder, max_model_len=4096)
    note("start_up_s", round(time.perf_counter() - start, 2))
    note("backend", llm.engine.runner.choice.reason)
    note("blocks", llm.engine.runner.num_kvcache_blocks)
    if shape == "0.6b":
        for seed in range(3):
            note(f"article_tok_s_{seed}", round(article(llm, seed)))
        for batch, context in ((256, 193), (256, 641), (64, 641), (32, 641), (8, 641), (1, 641)):
            note(f"step_ms_{batch}x{context}", round(step_ms(llm, batch, context, batch), 3))
        rates = [16 * 1024 / seconds(llm, *fixed(16, 1024, 1, 50 + i)) for i in range(4)]
        note("prefill_16x1024_tok_s", [round(r) for r in rates])
        first = [seconds(llm, *fixed(1, 128, 1, 70 + i)) * 1e3 for i in range(4)]
        note("first_token_128_ms", [round(ms, 2) for ms in first])
    for batch, context in ((256, 567), (64, 641), (8, 641), (1, 641)):
        if shape != "0.6b":
            note(f"step_ms_{batch}x{context}", round(step_ms(llm, batch, context, batch), 3))
        note(f"profile_{batch}x{context}", profile(llm, batch, context))
        note(f"host_ms_{batch}x{context}", round(host_ms(llm, batch, context), 3))


if __name__ == "__main__":
    main()
