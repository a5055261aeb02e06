"""A seeded request gives the same tokens wherever and beside whom it runs.

vllm #17524 (another order of the batch), #51226 (a neighbour without a seed), #2514; tt-metal
#53802 (the same seed twice in one batch); nano-vllm #218 (samples of unfinished chunks).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzz_tools import examples
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import random_prompts

from nanoengine import LLM, SamplingParams

PROMPTS = random_prompts([3, 9, 14, 6], seed=2)
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_k": 20},
    {"top_p": 0.8},
    {"min_p": 0.05},
]
Request = tuple[list[int], SamplingParams]


def seeded(prompt: int, seed: int, way: int = 0) -> Request:
    """A request of which everything is decided."""
    return PROMPTS[prompt], SamplingParams(seed=seed, max_tokens=10, ignore_eos=True, **WAYS[way])


@pytest.fixture
def folder(checkpoint: Callable[[str], Path]) -> Path:
    """A tiny Qwen3."""
    return checkpoint("qwen3")


def run(llm: LLM, requests: list[Request]) -> list[list[int]]:
    """The requests' tokens, from one batch."""
    prompts, params = [p for p, _ in requests], [s for _, s in requests]
    return [out.token_ids for out in llm.generate(prompts, params, use_tqdm=False)]


def test_whatever_runs_beside_it(folder: Path) -> None:
    """Alone, first, in the middle, last, twice; greedy, seeded and unseeded neighbours; small
    pools that preempt, small budgets that cut prompts, with and without overlap and graphs."""
    alone: dict[tuple[int, int, int], list[int]] = {}
    seen = {"preempted": 0, "twice": 0}
    neighbours = st.sampled_from([
        SamplingParams(temperature=0, max_tokens=9),
        SamplingParams(max_tokens=12, ignore_eos=True),
        SamplingParams(max_tokens=5, seed=1, top_k=3, ignore_eos=True),
        SamplingParams(max_tokens=10, seed=11, ignore_eos=True),
    ])  # fmt: skip
    options = st.fixed_dictionaries({
        "num_kvcache_blocks": st.sampled_from([7, 9, 64]),
        "max_num_batched_tokens": st.sampled_from([5, 8, 64]),
        "max_num_seqs": st.sampled_from([3, 8]),
        "overlap": st.booleans(),
        "enforce_eager": st.booleans(),
        "enable_prefix_caching": st.booleans(),
    })  # fmt: skip

    @examples(60)
    @given(
        st.tuples(st.integers(0, 3), st.integers(10, 12), st.integers(0, 3)),
        st.lists(st.tuples(st.integers(0, 3), neighbours), max_size=5),
        st.lists(st.integers(0, 5), min_size=1, max_size=2),
        options,
        st.integers(0, 9),
    )
    def check(
        key: tuple[int, int, int],
        others: list[tuple[int, SamplingParams]],
        places: list[int],
        wanted: dict[str, Any],
        noise: int,
    ) -> None:
        torch.manual_seed(noise)  # nobody's seed depends on torch's own generator
        with LLM(folder, device="cpu", kvcache_block_size=4, **wanted) as llm:
            requests = [(PROMPTS[i], params) for i, params in others]
            for place in places:
                requests.insert(place, seeded(*key))
            tokens = run(llm, requests)
            seen["preempted"] += llm.engine.stats()["preemptions"] > 0
            seen["twice"] += len(places) == 2
        if key not in alone:
            with LLM(folder, device="cpu", num_kvcache_blocks=64) as llm:
                alone[key] = run(llm, [seeded(*key)])[0]
        mine = [t for request, t in zip(requests, tokens, strict=True) if request == seeded(*key)]
        assert len(mine) >= len(places)
        assert all(each == alone[key] for each in mine)

    check()
    assert min(seen.values()) > 5, seen


def test_other_seeds_and_positions_give_other_tokens(
    folder: Path, make_llm: Callable[..., LLM]
) -> None:
    tokens = run(make_llm(folder), [seeded(1, seed) for seed in range(20)])
    assert len({tuple(each) for each in tokens}) == 20
    free = SamplingParams(max_tokens=10, ignore_eos=True)
    unseeded = run(make_llm(folder), [(PROMPTS[1], free)] * 20)
    assert len({tuple(each) for each in unseeded}) == 20


def test_arriving_while_others_run(folder: Path, make_llm: Callable[..., LLM]) -> None:
    wanted = run(make_llm(folder), [seeded(1, 11)])[0]
    engine = make_llm(folder).engine
    for steps in range(6):
        engine.add_request(PROMPTS[2], SamplingParams(max_tokens=20, ignore_eos=True))
        for _ in range(steps):
            engine.step()
        output = engine.output(engine.add_request(*seeded(1, 11)))
        while not output.finished:
            engine.step()
        assert output.token_ids == wanted


def test_torchs_own_generator_is_left_alone(folder: Path, make_llm: Callable[..., LLM]) -> None:
    """Who seeds torch for a measurement gets the same numbers whether an engine ran or not."""
    llm = make_llm(folder)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    run(llm, [seeded(1, 5), (PROMPTS[0], SamplingParams(max_tokens=5))])
    assert torch.equal(torch.get_rng_state(), state)
