"""Lesson 04's traps: stale rows of a padded bucket are caught by behaviour, with few blocks."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nanoengine import LLM, SamplingParams
from nanoengine.context import captured_context
from nanoengine.course import grade, questions, swap
from nanoengine.course.judge import behaviour_difference, expected_behaviour
from nanoengine.course.lessons import draws_04, replay_04, traces_04
from nanoengine.course.result import MESSAGE_LIMIT
from nanoengine.course.scenarios import SCENARIOS, run
from nanoengine.course.tiny import save_model
from nanoengine.engine import cuda_graph
from nanoengine.errors import GraphError

NAME = "reused blocks"
library = cuda_graph.stage_inputs


def all_stale(buffers: Any, ids: Any, positions: Any, context: Any, bucket: int) -> None:
    library(buffers, ids, positions, context, len(ids))


def stale_slots(buffers: Any, ids: Any, positions: Any, context: Any, bucket: int) -> None:
    all_stale(buffers, ids, positions, context, bucket)
    buffers.context_lens[len(ids) : bucket] = 0


def stale_lengths(buffers: Any, ids: Any, positions: Any, context: Any, bucket: int) -> None:
    all_stale(buffers, ids, positions, context, bucket)
    buffers.slot_mapping[len(ids) : bucket] = -1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("tiny"))


def test_stale_rows_change_what_the_engine_says(folder: Path) -> None:
    expected = expected_behaviour(NAME, folder)
    with swap("04.stage_inputs", all_stale):
        found = behaviour_difference(expected, run(SCENARIOS[NAME], folder))
    assert found is not None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(stale_slots, "context_lens 0"), (stale_lengths, "has slot -1 and context_lens [1-9]")],
)
def test_half_stale_rows_are_an_error(folder: Path, wrong: Callable[..., None], words: str) -> None:
    with pytest.raises(GraphError, match=words), swap("04.stage_inputs", wrong):
        run(SCENARIOS[NAME], folder)


def test_in_a_large_pool_nobody_would_notice(folder: Path) -> None:
    """No block is given away twice: the stale rows write again what is there already."""
    scenario = SCENARIOS[NAME]
    large = dataclasses.replace(scenario, options={**scenario.options, "num_kvcache_blocks": 120})
    expected = run(large, folder)
    with swap("04.stage_inputs", all_stale):
        assert behaviour_difference(expected, run(large, folder)) is None


def test_the_toys_replays_equal_its_eager_runs() -> None:
    replayed = replay_04.replay_toy(cuda_graph.capture_all, library, "cpu")
    device = torch.device("cpu")
    model, outputs = replay_04.Toy(device), []
    for number, rows in enumerate(replay_04.toy_steps()):
        ids, positions, context = replay_04._tensors(rows, number, device)
        with captured_context(context):
            outputs.append(model(ids, positions).tolist())
    assert replayed == {"outputs": outputs, "cache": model.cache[:-1].tolist()}


def test_the_toys_batches_are_real_ones() -> None:
    """Every size from 11 to 1, no block in two tables, block 0 in use."""
    steps = replay_04.toy_steps()
    assert [len(rows) for rows in steps[:11]] == list(range(11, 0, -1))
    for rows in steps:
        blocks = [block for _, table in rows for block in table]
        assert len(set(blocks)) == len(blocks)
        assert all(len(table) == -(-length // replay_04.BLOCK) for length, table in rows)
    assert any(0 in table for _, table in steps[-2])


def test_stale_rows_spoil_the_toy() -> None:
    right = replay_04.probe_stage(library, "cpu")
    assert replay_04.probe_stage(all_stale, "cpu") != right


# -- what the lesson measures ------------------------------------------------------------------


def test_a_steps_operations_do_not_grow_with_the_batch(folder: Path) -> None:
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    with LLM(folder, device="cpu", kvcache_block_size=4, num_kvcache_blocks=64) as llm:
        body = llm.engine.runner.run_model
        with traces_04.watched_decode(llm.engine.runner) as runs:
            for batch in (1, 3, 12):
                prompts = [[5 + i, 6, 7] for i in range(batch)]
                llm.generate(prompts, params, use_tqdm=False)
        assert llm.engine.runner.run_model == body
    counts = {run.batch: len(run.operations) for run in runs}
    assert list(counts) == [1, 3, 12]
    assert counts[3] == counts[12]
    assert 0 <= counts[3] - counts[1] < 10
    assert "linear" in runs[0].operations
    assert not {"view", "item", "empty"} & set(runs[0].operations)


def test_intermediates_grow_with_the_bucket(folder: Path) -> None:
    with LLM(folder, device="cpu", kvcache_block_size=4, num_kvcache_blocks=64) as llm:
        peaks = traces_04.intermediate_bytes(
            cuda_graph.capture_all, llm.engine.runner, cuda_graph.graph_buckets(20)
        )
    assert list(peaks) == cuda_graph.graph_buckets(20)
    assert list(peaks.values()) == sorted(set(peaks.values()))


def test_the_articles_engine_misses_what_the_article_says() -> None:
    assert draws_04.without_graph(100) == [97, 98, 99, 100]
    assert draws_04.without_graph(12) == [9, 10, 11, 12]
    assert not any(map(draws_04.without_graph, (1, 5, 8, 16, 48, 512, 600)))
    assert all(draws_04.without_graph(n) for n in range(9, 512) if n % 16)


def test_the_drawn_questions_are_never_trivial() -> None:
    stop: Any = questions["04.q.stop_iteration"]
    padded: Any = questions["04.q.padded_rows"]
    for student in map(str, range(60)):
        drawn = stop.inputs(student)
        right = stop.answer(drawn)
        assert 0 < len(right) < len(drawn["values"])
        assert stop.check(student, right).state == "pass"
        for wrong in ([], drawn["values"], right[1:], 5):
            assert len(stop.check(student, wrong).message) <= MESSAGE_LIMIT
            assert stop.check(student, wrong).state == "fail" or wrong == right
        assert padded.answer(padded.inputs(student)) > 0


TORCHS_OWN = """
import torch

def capture_all(model, buffers, buckets, new_graph):
    return {bucket: torch.cuda.CUDAGraph() for bucket in buckets}
"""


def test_torchs_own_graphs_lead_to_new_graph() -> None:
    """As the article writes it; the engine gives the kind of graph that this machine has."""
    result = grade("04.capture_all", TORCHS_OWN)
    assert result.state == "fail"
    assert "new_graph" in result.message
    if not torch.cuda.is_available():
        assert "need a GPU" in result.message
