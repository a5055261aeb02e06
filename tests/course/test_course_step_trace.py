"""The trace of a step: the parts in their order, times inside times, and nothing left behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nanoengine.config import EngineConfig
from nanoengine.course import swap
from nanoengine.course.step_trace import traced
from nanoengine.course.tiny import save_model
from nanoengine.engine.engine import LLMEngine
from nanoengine.layers import sampler
from nanoengine.sampling_params import SamplingParams
from nanoengine.viz.runner import Call


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LLMEngine]:
    config = EngineConfig.from_kwargs(
        device="cpu", kvcache_block_size=4, num_kvcache_blocks=32, overlap=False
    )
    engine = LLMEngine(save_model(tmp_path), config)
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    for prompt in ([5, 9, 2, 30], [7, 1, 4]):
        engine.add_request(prompt, params)
    yield engine
    engine.close()


def titles(calls: list[Call]) -> list[str]:
    return [call.title for call in calls]


def test_a_prefill_and_a_decode_step_in_their_order(engine: LLMEngine) -> None:
    with traced(engine) as calls:
        engine.step()
    names = titles(calls)
    assert names.count("BlockManager.allocate") == 2
    assert names.index("Scheduler.schedule") < names.index("ModelRunner.run")
    assert calls[1].note == "prefill of 2"
    with traced(engine) as calls:
        engine.step()
    assert titles(calls) == [
        "LLMEngine.step",
        "Scheduler.schedule",
        "BlockManager.append_block",  # the first prompt filled its block
        "ModelRunner.run",
        "ModelRunner.prepare",
        "ModelRunner.run_model",
        "model.forward",
        "model.compute_logits",
        "ModelRunner.sample_on_rank_0",
        "Sampler.sample",
        "LLMEngine._apply",
        *["Scheduler.applied", "BlockManager.hash_blocks"] * 2,
    ]
    assert "2 rows" in calls[3].note


def test_calls_lie_inside_the_calls_around_them(engine: LLMEngine) -> None:
    with traced(engine) as calls:
        engine.step()
    around: list[Call] = []
    for call in calls:
        del around[call.depth :]
        assert call.start <= call.end
        if around:
            assert around[-1].start <= call.start
            assert call.end <= around[-1].end
        around.append(call)


def test_nothing_is_left_behind_also_after_an_exception(engine: LLMEngine) -> None:
    def attributes() -> list[Any]:
        things: list[Any] = [engine, engine.scheduler, engine.runner, engine.runner.model]
        return [sorted(vars(thing)) for thing in things]

    before, function = attributes(), sampler.sample
    with pytest.raises(ZeroDivisionError), traced(engine):
        raise ZeroDivisionError
    assert attributes() == before
    assert sampler.sample is function


def test_a_students_function_is_watched_like_the_librarys(engine: LLMEngine) -> None:
    library = sampler.sample

    def mine(logits: Any, temperatures: Any, noise: Any) -> Any:
        return library(logits, temperatures, noise) * 0 + 7

    with swap("06.sample", mine), traced(engine) as calls:
        engine.step()
    assert next(call.note for call in calls if call.name == "sample") == "tokens [7, 7]"
