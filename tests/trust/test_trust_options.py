"""Any options of LLM and SamplingParams: they work, with the right tokens, or one error."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz_tools import ODD, attempt, examples
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import MAX_LEN, random_prompts

from nanoengine import LLM, SamplingParams
from nanoengine.config import BACKENDS, DEVICES, DTYPES, EngineConfig
from nanoengine.errors import ConfigError, NotEnoughMemory, RequestError

(PROMPT,) = random_prompts([9], seed=4)
GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
# what may work; several together may still be refused
PLAUSIBLE: dict[str, list[Any]] = {
    "device": [*DEVICES],
    "dtype": ["auto", *DTYPES],
    "attention_backend": [*BACKENDS],
    "kvcache_block_size": [None, 4, 8, 16, 64, 256, 1 << 20],
    "num_kvcache_blocks": [None, 1, 3, 4, 100],
    "gpu_memory_utilization": [0.1, 1.0, 0.5],
    "gpu_reserve_bytes": [0, 1 << 40],
    "cpu_kvcache_bytes": [1, 1000, 100_000, 1 << 24],
    "max_num_seqs": [1, 2, 64, 1000, 10**9, 10**13],
    "max_num_batched_tokens": [1, 2, 9, 4096, 10**9, 10**13],
    "max_prefill_tokens": [None, 1, 5, 10**9],
    "max_model_len": [None, 1, 9, 12, 13, MAX_LEN, MAX_LEN + 1],
    "tensor_parallel_size": [1, 3],  # 3 heads cannot be divided
    "worker_timeout": [0.001, 1e9],
    "enforce_eager": [None, True, False],
    "graph_max_batch": [1, 3, 512, 10**9],
    "graph_bucket_step": [1, 5, 16, 10**9],
    "overlap": [True, False],
    "enable_prefix_caching": [True, False],
}


def options(cls: type, plausible: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """One to four fields with plausible or odd values."""
    names = sorted({field.name for field in dataclasses.fields(cls)} & plausible.keys())
    pairs = st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from(plausible[name] * 3 + ODD))
    )
    return st.lists(pairs, min_size=1, max_size=4).map(dict)


def test_options_of_the_engine(checkpoint: Callable[[str], Path]) -> None:
    folder, seen = checkpoint("qwen3"), Counter[str]()
    with LLM(folder, device="cpu", num_kvcache_blocks=8) as llm:
        wanted = llm.generate(PROMPT, GREEDY, use_tqdm=False)[0].token_ids

    def run(chosen: dict[str, Any]) -> list[int]:
        # not the default gigabyte for each of hundreds of engines
        with LLM(folder, **{"num_kvcache_blocks": 8, **chosen}) as llm:
            return llm.generate(PROMPT, GREEDY, use_tqdm=False)[0].token_ids

    @examples(250)
    @given(options(EngineConfig, PLAUSIBLE))
    def check(chosen: dict[str, Any]) -> None:
        tokens, message = attempt(lambda: run(chosen))
        seen["refused" if message else "worked"] += 1
        if tokens is not None and chosen.get("dtype", "auto") in ("auto", "float32"):
            # a short pool or max_model_len ends the output earlier
            assert tokens == wanted[: len(tokens)], chosen

    check()
    assert min(seen.values()) > 30, seen


def test_options_of_requests(
    checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM]
) -> None:
    llm = make_llm(checkpoint("qwen3"))
    plausible: dict[str, list[Any]] = {
        "temperature": [0, 1e-9, 1e-5, 0.3, 1, 1e6, 1e308],
        "top_k": [-1, 0, 1, 5, 10**9],
        "top_p": [1e-9, 0.5, 1.0],
        "min_p": [0.0, 0.5, 1.0],
        "max_tokens": [1, 2, 20],
        "min_tokens": [0, 1, 2],
        "stop": [None, []],
        "stop_token_ids": [None, [], [1, 2], list(range(512)), {3}, (4,)],
        "ignore_eos": [True, False],
        "seed": [None, 0, -1, 2**63, -(2**63), 2**64 - 1],
    }
    seen = Counter[str]()

    @examples(250)
    @given(options(SamplingParams, plausible))
    def check(chosen: dict[str, Any]) -> None:
        output, message = attempt(
            lambda: llm.generate(PROMPT, SamplingParams(**chosen), use_tqdm=False)[0]
        )
        seen["refused" if message else "worked"] += 1
        if output is not None:
            count = len(output.token_ids)
            room = MAX_LEN - len(PROMPT)
            assert min(chosen.get("min_tokens", 0), room) <= count
            assert count <= min(chosen.get("max_tokens", 16), room)
            assert all(0 <= token < 512 for token in output.token_ids)
        stats = llm.engine.stats()
        assert stats["free_blocks"] == stats["num_blocks"]

    check()
    assert min(seen.values()) > 30, seen


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"max_num_seqs": 10**13, "max_num_batched_tokens": 2**31 - 1}, "is beyond 65536: use a"),
        ({"max_num_batched_tokens": 10**13}, "max_num_batched_tokens=10000000000000 is beyond"),
        ({"num_kvcache_blocks": 2**63}, "num_kvcache_blocks=9223372036854775808 is beyond"),
    ],
)
def test_numbers_that_would_take_all_memory(
    checkpoint: Callable[[str], Path], chosen: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        LLM(checkpoint("qwen3"), device="cpu", **chosen)


def test_a_pool_that_does_not_fit_is_named(checkpoint: Callable[[str], Path]) -> None:
    with pytest.raises(NotEnoughMemory, match=r"2147483647 KV blocks of 256 tokens take \d+ MiB"):
        LLM(checkpoint("qwen3"), device="cpu", num_kvcache_blocks=2**31 - 1, kvcache_block_size=256)


def test_a_huge_top_k_keeps_all_and_harms_nobody(
    checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM]
) -> None:
    """A number beyond int64 was found in the middle of a step, and ended all requests."""
    llm = make_llm(checkpoint("qwen3"))
    params = [SamplingParams(seed=1, top_k=k) for k in (0, 2**63)]
    first, second = llm.generate([PROMPT] * 2, params, use_tqdm=False)
    assert first.token_ids == second.token_ids


def test_numbers_beyond_float_are_refused() -> None:
    for name in ("temperature", "top_p", "min_p"):
        with pytest.raises(RequestError, match=f"{name}=1.* is not a finite number"):
            SamplingParams(**{name: 10**400})
