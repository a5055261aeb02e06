"""The whole engine on several ranks: the same tokens, each rank its own part of the weights."""

import gc
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import torch
import worker_probe
from tiny_models import random_prompts

from nanoengine import LLM, SamplingParams
from nanoengine.config import EngineConfig
from nanoengine.distributed.group import TPGroup
from nanoengine.distributed.worker import worker_setup
from nanoengine.engine import tensor_parallel
from nanoengine.engine.sequence import Batch
from nanoengine.engine.step_message import DECODE, GO_ON, PREFILL, BatchWriter
from nanoengine.errors import ConfigError, EngineError, WorkerError
from nanoengine.layers.embed_head import embed
from nanoengine.models.config import read_model_config
from nanoengine.models.qwen3 import Qwen3ForCausalLM
from nanoengine.weights import build_model, load_weights

if sys.platform == "win32":
    pytest.skip("needs Unix sockets that carry descriptors", allow_module_level=True)

ODD_VOCAB = 509  # a prime: no number of ranks divides it
FOUND_WITHIN = 10.0
# chunks, preemptions and prefix hits at once
CROWDED: dict[str, Any] = {
    "kvcache_block_size": 4,
    "num_kvcache_blocks": 9,
    "max_num_batched_tokens": 6,
    "max_num_seqs": 4,
}


@pytest.fixture(scope="session")
def odd_vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with 2 kv heads and a vocabulary that nothing divides."""
    kind = ("Llama", {"tie_word_embeddings": False, "vocab_size": ODD_VOCAB, "head_dim": 24})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny_models.KINDS, "odd", kind)
        return tiny_models.save(tmp_path_factory.mktemp("odd"), "odd")


def requests(vocab: int = ODD_VOCAB) -> tuple[list[list[int]], list[SamplingParams]]:
    """Prompts that share beginnings; greedy and seeded sampling in turn."""
    prompts = random_prompts([1, 4, 5, 9, 13], vocab=vocab)
    prompts += [prompts[4][:8] + prompts[2], prompts[4][:12], list(prompts[4])]
    params = [
        SamplingParams(temperature=i % 2 * 0.8, seed=i, max_tokens=4 + i, top_k=5 * (i % 3))
        for i in range(len(prompts))
    ]
    return prompts, params


def tokens(llm: LLM, vocab: int = ODD_VOCAB) -> list[list[int]]:
    """The outputs of `requests`."""
    return [output.token_ids for output in llm.generate(*requests(vocab), use_tqdm=False)]


def alone(folder: Path, vocab: int = ODD_VOCAB) -> list[list[int]]:
    """The same from the plainest engine of one rank."""
    with LLM(folder, device="cpu", kvcache_block_size=4, num_kvcache_blocks=100) as llm:
        return tokens(llm, vocab)


def no_children() -> bool:
    """Whether every worker is gone."""
    return not [p for p in multiprocessing.active_children() if "nanoengine" in p.name]


def test_two_ranks_with_everything_at_once(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overlap, the graph double, chunks, preemptions, prefix hits; twice; then a fault."""
    encode, forms = BatchWriter.encode, Counter[int]()

    def counted(self: BatchWriter, batch: Batch) -> list[int]:
        values = encode(self, batch)
        forms[values[0]] += 1
        return values

    monkeypatch.setattr(BatchWriter, "encode", counted)
    folder = checkpoint("qwen3")
    expected = alone(folder)
    with LLM(
        folder, device="cpu", tensor_parallel_size=2, enforce_eager=False, overlap=True, **CROWDED
    ) as llm:
        assert tokens(llm) == expected
        assert tokens(llm) == expected
        stats = llm.engine.stats()
        assert stats["preemptions"] > 0
        assert stats["free_blocks"] == stats["num_blocks"]
        assert min(forms[form] for form in (DECODE, PREFILL, GO_ON)) > 0
        kill_and_see(llm)
    assert no_children()


def kill_and_see(llm: LLM) -> None:
    """A worker that is killed is a named error, and the engine says so ever after."""
    runner = llm.engine.runner
    assert isinstance(runner, tensor_parallel.ParallelRunner)
    os.kill(runner.workers.peers[0].pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"rank 1 .*SIGKILL") as caught:
        tokens(llm)
    assert time.monotonic() - began < FOUND_WITHIN
    assert (caught.value.rank, caught.value.exitcode) == (1, -signal.SIGKILL)
    with pytest.raises(EngineError, match=r"workers have ended .*SIGKILL"):
        tokens(llm)


def test_four_ranks_share_two_kv_heads_and_an_odd_vocabulary(
    odd_vocab: Path, tmp_path: Path
) -> None:
    """No overlap; rank 3 has the least room; every rank reads and holds its own part."""
    few = CROWDED["num_kvcache_blocks"]
    probe = str(tmp_path / "rank")
    setups = [
        worker_setup("worker_probe:dump_model", path=probe),
        worker_setup("worker_probe:fewer_blocks_on_rank_3", blocks=few),
    ]
    options = {**CROWDED, "num_kvcache_blocks": None, "cpu_kvcache_bytes": 1 << 20}
    with setups[0], setups[1]:
        llm = LLM(odd_vocab, device="cpu", tensor_parallel_size=4, overlap=False, **options)
    with llm:
        assert llm.engine.stats()["num_blocks"] == few
        assert tokens(llm) == alone(odd_vocab)
        assert llm.engine.stats()["preemptions"] > 0
        assert llm.engine.stats()["num_blocks"] == few
    config = read_model_config(odd_vocab)
    for rank in (1, 2, 3):
        facts = json.loads(Path(f"{probe}.{rank}").read_text(encoding="utf-8"))
        model = shard(odd_vocab, rank, 4)
        assert facts["shapes"] == {n: list(p.shape) for n, p in model.named_parameters()}
        assert facts["read"] == expected_bytes(odd_vocab, rank, 4)
        assert facts["cache"] == [2, config.num_hidden_layers, few, 4, 1, config.head_dim]


def shard(folder: Path, rank: int, size: int) -> Any:
    """One rank's model, without processes."""
    config = read_model_config(folder)
    cpu = torch.device("cpu")
    model = build_model(Qwen3ForCausalLM, torch.float32, cpu, config, None, 64, TPGroup(rank, size))
    load_weights(model, folder)
    return model


def expected_bytes(folder: Path, rank: int, size: int) -> int:
    """What a rank must read: its part of each matrix, and the whole of each small vector."""
    c = read_model_config(folder)
    queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    kv_ranks = min(size, c.num_key_value_heads)
    inner, hidden = c.intermediate_size, c.hidden_size
    attention = hidden * (2 * queries // size + 2 * keys // kv_ranks)
    norms = 2 * hidden + (2 * c.head_dim if c.qk_norm else 0)
    layers = c.num_hidden_layers * (attention + 3 * hidden * inner // size + norms)
    rows = -(-c.vocab_size // size)
    mine = min(rows, c.vocab_size - rank * rows)
    return 4 * (layers + hidden + 2 * mine * hidden)


@pytest.mark.parametrize("size", [2, 4])
def test_the_parts_are_the_whole(
    odd_vocab: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, config = shard(odd_vocab, 0, 1), read_model_config(odd_vocab)
    monkeypatch.setattr("nanoengine.weights.safe_open", worker_probe.weights.safe_open)
    counter = worker_probe.count_reads()
    parts = []
    for rank in range(size):
        counter["read"] = 0
        parts.append(shard(odd_vocab, rank, size))
        assert counter["read"] == expected_bytes(odd_vocab, rank, size)
    table = torch.cat([part.lm_head.weight for part in parts])
    assert torch.equal(table[:ODD_VOCAB], whole.lm_head.weight)
    assert not table[ODD_VOCAB:].any()
    down = [part.model.layers[1].mlp.down_proj.weight for part in parts]
    assert torch.equal(torch.cat(down, 1), whole.model.layers[1].mlp.down_proj.weight)
    gate_up = [part.model.layers[1].mlp.gate_up_proj.weight.chunk(2) for part in parts]
    expected = whole.model.layers[1].mlp.gate_up_proj.weight
    assert torch.equal(
        torch.cat([gate for gate, _ in gate_up] + [up for _, up in gate_up]), expected
    )
    dim, heads = config.head_dim, config.num_attention_heads
    full = whole.model.layers[0].self_attn.qkv_proj.weight.split([heads * dim, 2 * dim, 2 * dim])
    for rank, part in enumerate(parts):
        mine = part.model.layers[0].self_attn.qkv_proj
        q, k, v = mine.weight.split([mine.num_heads * dim] + [mine.num_kv_heads * dim] * 2)
        assert torch.equal(q, full[0].chunk(size)[rank])
        head = rank * 2 // size  # with 4 ranks, 0 and 1 keep the first kv head
        assert torch.equal(k, full[1][head * dim : (head + 1) * dim])
        assert torch.equal(v, full[2][head * dim : (head + 1) * dim])


def test_the_parts_of_the_embedding_add_up() -> None:
    table, rng = torch.randn(11, 3), random.Random(0)
    ids = torch.tensor([rng.randrange(11) for _ in range(40)] + [0, 10])
    padded = torch.cat([table, torch.zeros(1, 3)])
    total = sum(
        embed(ids, padded[first : first + 4], first, min(first + 4, 11)) for first in (0, 4, 8)
    )
    assert torch.equal(total, table[ids])


def test_a_worker_that_raises_in_a_step(checkpoint: Callable[[str], Path]) -> None:
    with worker_setup("worker_probe:raise_in_run", message="planted"):
        llm = LLM(checkpoint("qwen3"), device="cpu", tensor_parallel_size=2, **CROWDED)
    with pytest.raises(WorkerError, match=r"rank 1 .*ValueError: planted[^$]*in fail"):
        tokens(llm)
    llm.close()
    llm.close()
    assert no_children()


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", ["qwen3-tied", "qwen3-bias", "qwen2", "llama-bias", "llama3-rope"])
def test_other_models(checkpoint: Callable[[str], Path], kind: str, size: int) -> None:
    folder = checkpoint(kind)
    with LLM(folder, device="cpu", tensor_parallel_size=size, **CROWDED) as llm:
        assert tokens(llm) == alone(folder)


@pytest.mark.slow
def test_two_engines_at_once(checkpoint: Callable[[str], Path]) -> None:
    folder = checkpoint("qwen3")
    expected = alone(folder)
    first = LLM(folder, device="cpu", tensor_parallel_size=2, **CROWDED)
    second = LLM(folder, device="cpu", tensor_parallel_size=2, **CROWDED)
    prompts, params = requests()
    streams = [llm.stream(prompts[0], params[0]) for llm in (first, second)]
    for _ in range(2):
        for llm in (first, second):
            llm.engine.step()
    del streams
    assert tokens(second) == expected
    assert tokens(first) == expected
    first.close()
    assert tokens(second) == expected
    del second, llm
    gc.collect()
    assert no_children()


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_the_classroom_model(size: int) -> None:
    def text(**options: Any) -> list[str]:
        with LLM(device="cpu", num_kvcache_blocks=64, max_num_seqs=4, **options) as llm:
            params = SamplingParams(temperature=0, max_tokens=12)
            prompts = ["One day, a little girl", "The sun was"]
            return [out.text for out in llm.generate(prompts, params, use_tqdm=False)]

    assert text(tensor_parallel_size=size) == text()


@pytest.mark.parametrize(
    ("size", "match"),
    [
        (3, r"num_attention_heads=4 .*tensor_parallel_size=3"),
        (8, r"num_attention_heads=4 .*tensor_parallel_size=8"),
    ],
)
def test_sizes_that_cannot_be_divided(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, size: int, match: str
) -> None:
    monkeypatch.setattr(tensor_parallel, "launch", None)  # refused before anything is started
    with pytest.raises(ConfigError, match=match):
        LLM(checkpoint("qwen3"), device="cpu", tensor_parallel_size=size)


def test_more_ranks_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"tensor_parallel_size=4, .* 2 GPUs"):
        tensor_parallel.launch(4, "no:target", {}, torch.device("cuda"), 7.0)


def test_a_worker_timeout_is_positive() -> None:
    with pytest.raises(ConfigError, match="worker_timeout=0"):
        EngineConfig(worker_timeout=0)


def test_one_rank_starts_nothing(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_parallel, "launch", None)
    before = multiprocessing.active_children()
    with LLM(checkpoint("qwen3"), device="cpu", num_kvcache_blocks=20) as llm:
        llm.generate([[1, 2]], SamplingParams(max_tokens=2), use_tqdm=False)
        assert llm.engine.runner.group.backend is None
    assert multiprocessing.active_children() == before
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
def test_a_script_without_a_guard(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    options = {"device": "cpu", "tensor_parallel_size": 2, "num_kvcache_blocks": 20}
    script.write_text(
        f"from nanoengine import LLM\nLLM({str(checkpoint('qwen3'))!r}, **{options})\n",
        encoding="utf-8",
    )
    result = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert result.returncode == 1
    assert 'if __name__ == "__main__":' in result.stderr.strip().splitlines()[-2]
