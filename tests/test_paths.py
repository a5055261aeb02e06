"""The same tokens whatever way a request takes through the engine."""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import random_prompts

from nanoengine import SamplingParams
from nanoengine.engine.record import StepRecord
from nanoengine.llm import LLM

BLOCK_SIZE = 4
Request = tuple[list[int], SamplingParams]

# each option's plain way and its other way
CHOICES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "prefix": ({"enable_prefix_caching": False}, {"enable_prefix_caching": True}),
    "chunked": ({}, {"max_num_batched_tokens": 5}),
    "preempted": ({"num_kvcache_blocks": 512}, {"num_kvcache_blocks": 8}),
    "overlap": ({"overlap": False}, {"overlap": True}),
    "graph": ({"enforce_eager": True}, {"enforce_eager": False}),
}
PLAIN = {key: value for plain, _ in CHOICES.values() for key, value in plain.items()}


def sampling(index: int, **options: Any) -> SamplingParams:
    """A different way of sampling for each index: greedy, plain, filtered, all filters at once."""
    ways: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 5},
        {"temperature": 1.3, "top_p": 0.8},
        {"temperature": 0.9, "min_p": 0.1},
        {"temperature": 1.1, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    ]
    return SamplingParams(**{**ways[index % len(ways)], "seed": index, **options})


def make_requests() -> list[Request]:
    """Prompts of 1 to 3 blocks and one more token, some of which begin alike; unequal lengths."""
    prompts = random_prompts([*range(1, 3 * BLOCK_SIZE + 2)])
    long = prompts[-1]
    prompts += [long[:8] + prompts[4], long[:4] + prompts[2], long[:12], list(long), long[:8]]
    # 3 to 13 new tokens
    return [(p, sampling(i, max_tokens=3 + 7 * i % 11)) for i, p in enumerate(prompts)]


def run(llm: LLM, requests: list[Request]) -> list[list[int]]:
    """The output tokens of all requests in one batch."""
    prompts, params = [p for p, _ in requests], [s for _, s in requests]
    return [output.token_ids for output in llm.generate(prompts, params, use_tqdm=False)]


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[[str], Path]) -> Path:
    """A tiny Qwen3."""
    return checkpoint("qwen3")


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[list[int]]:
    """Every request's tokens when it runs by itself in the plainest engine."""
    with LLM(folder, device="cpu", kvcache_block_size=BLOCK_SIZE, **PLAIN) as llm:
        return [run(llm, [request])[0] for request in make_requests()]


@pytest.mark.parametrize("ways", [*itertools.product((0, 1), repeat=len(CHOICES))], ids=str)
def test_every_combination_of_paths(
    folder: Path,
    make_llm: Callable[..., LLM],
    alone: list[list[int]],
    ways: tuple[int, ...],
) -> None:
    names = [name for name, way in zip(CHOICES, ways, strict=True) if way]
    options: dict[str, Any] = {}
    for choice, way in zip(CHOICES.values(), ways, strict=True):
        options |= choice[way]
    records: list[StepRecord] = []
    llm = make_llm(folder, on_step=records.append, **options)
    assert run(llm, make_requests()) == alone
    if "prefix" in names:  # a second time: everything may come from the cache
        assert run(llm, make_requests()) == alone
    stats = llm.engine.stats()
    assert (stats["preemptions"] > 0) == ("preempted" in names)
    assert stats["free_blocks"] == stats["num_blocks"]
    chunks = any(not item.emits for record in records for item in record.batch.items)
    assert chunks == ("chunked" in names)
    replayed = [r for r in records if r.bucket is not None]
    assert bool(replayed) == ("graph" in names)


@pytest.mark.parametrize("block_size", [16, 256])
def test_block_sizes(
    folder: Path, make_llm: Callable[..., LLM], alone: list[list[int]], block_size: int
) -> None:
    llm = make_llm(folder, kvcache_block_size=block_size, num_kvcache_blocks=40)
    assert run(llm, make_requests()) == alone


@pytest.mark.parametrize("seed", range(4))
def test_any_order(
    folder: Path, make_llm: Callable[..., LLM], alone: list[list[int]], seed: int
) -> None:
    requests = make_requests()
    order = list(range(len(requests)))
    random.Random(seed).shuffle(order)
    llm = make_llm(folder, num_kvcache_blocks=20, max_num_seqs=7)
    assert run(llm, [requests[i] for i in order]) == [alone[i] for i in order]


def test_arriving_one_by_one(
    folder: Path, make_llm: Callable[..., LLM], alone: list[list[int]]
) -> None:
    """A request joins in every step, while others run and end."""
    engine = make_llm(folder).engine
    tokens: dict[str, list[int]] = {}
    requests = make_requests()
    ids = []
    while requests or engine.has_unfinished:
        if requests:
            ids.append(engine.add_request(*requests.pop(0)))
        tokens |= {output.request_id: output.token_ids for output in engine.step()}
    assert [tokens[i] for i in ids] == alone


@pytest.mark.parametrize("max_num_seqs", [1, 3, 9, 17, 20])
@pytest.mark.parametrize("overlap", [False, True])
def test_graphs_at_every_batch_size(
    folder: Path, make_llm: Callable[..., LLM], max_num_seqs: int, overlap: bool
) -> None:
    """The batch shrinks by one sequence a step, through all buckets."""
    prompts = random_prompts([1 + i % 9 for i in range(max_num_seqs)])
    requests = [(p, sampling(i, max_tokens=i + 2)) for i, p in enumerate(prompts)]
    sizes: Counter[int] = Counter()

    def count(record: StepRecord) -> None:
        if record.bucket is not None:
            sizes[len(record.batch.items)] += 1
            assert record.bucket >= len(record.batch.items)

    options = {"max_num_seqs": max_num_seqs, "overlap": overlap}
    graph = make_llm(folder, enforce_eager=False, on_step=count, **options)
    eager = make_llm(folder, enforce_eager=True, **options)
    assert run(graph, requests) == run(eager, requests)
    assert set(sizes) == set(range(1, max_num_seqs + 1))


def test_batches_beyond_the_largest_graph_run_eagerly(
    folder: Path, make_llm: Callable[..., LLM], alone: list[list[int]]
) -> None:
    buckets: set[int | None] = set()
    llm = make_llm(
        folder, enforce_eager=False, graph_max_batch=4, on_step=lambda r: buckets.add(r.bucket)
    )
    assert run(llm, make_requests()) == alone
    assert {None, 4} <= buckets <= {None, 1, 2, 4}


@pytest.mark.parametrize("ways", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_stop_tokens_cut_at_the_same_place(
    folder: Path, make_llm: Callable[..., LLM], alone: list[list[int]], ways: tuple[int, int]
) -> None:
    """A stop token is found one step late with overlap; neighbours do not notice either way."""
    requests, wanted = [], []
    for i, ((prompt, params), tokens) in enumerate(zip(make_requests(), alone, strict=True)):
        stop = tokens[len(tokens) // 2] if i % 3 else None
        end = tokens.index(stop) + 1 if stop is not None else len(tokens)
        stops = None if stop is None else [stop]
        same = sampling(i, max_tokens=params.max_tokens, stop_token_ids=stops)
        requests.append((prompt, same))
        wanted.append(tokens[:end])
    assert len(wanted[1]) < len(alone[1])
    options = CHOICES["overlap"][ways[0]] | CHOICES["preempted"][ways[1]]
    llm = make_llm(folder, **options)
    assert run(llm, requests) == wanted
    assert llm.engine.stats()["free_blocks"] == llm.engine.stats()["num_blocks"]


class TestSeeds:
    """What a seed promises (and vLLM's users miss): the request alone decides its tokens."""

    def test_the_same_seed_twice_in_one_batch(
        self, folder: Path, make_llm: Callable[..., LLM]
    ) -> None:
        (prompt,) = random_prompts([9])
        seeded = SamplingParams(seed=7, max_tokens=12)
        other = SamplingParams(seed=8, max_tokens=12)
        first, second, third = run(
            make_llm(folder), [(prompt, seeded), (prompt, seeded), (prompt, other)]
        )
        assert first == second != third

    def test_unseeded_neighbours_do_not_matter_and_differ(
        self, folder: Path, make_llm: Callable[..., LLM], alone: list[list[int]]
    ) -> None:
        requests = make_requests()
        free = (requests[8][0], SamplingParams(max_tokens=12))
        mixed = [request for pair in zip(requests, itertools.repeat(free)) for request in pair]
        outputs = run(make_llm(folder), mixed)
        assert outputs[::2] == alone
        assert len({tuple(tokens) for tokens in outputs[1::2]}) > 1

    def test_negative_and_large_seeds(self, folder: Path, make_llm: Callable[..., LLM]) -> None:
        (prompt,) = random_prompts([9])
        seeds = [0, 1, -1, 2**63, 2**64 - 2, -(2**63)]
        outputs = run(
            make_llm(folder), [(prompt, SamplingParams(seed=s, max_tokens=12)) for s in seeds]
        )
        # -2**63 and 2**63 are the same 64 bits
        assert len({tuple(tokens) for tokens in outputs}) == len(seeds) - 1
        assert outputs[3] == outputs[5]
