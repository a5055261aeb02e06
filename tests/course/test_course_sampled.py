"""The workload that samples: what it reaches, and whether the judge's look-up finds a fault."""

from pathlib import Path
from typing import Any

import pytest
import torch
from course_answers import WRONG

from nanoengine.course import CourseError, judge, swap
from nanoengine.course.scenarios import SCENARIOS, run
from nanoengine.course.source import run_source
from nanoengine.course.tiny import save_model
from nanoengine.engine.engine import LLMEngine
from nanoengine.layers.sampler import GREEDY_BELOW, sample, uniform_noise


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A new folder: expected behaviour is remembered by it."""
    return save_model(tmp_path)


def test_a_batch_has_greedy_rows_and_rows_of_several_temperatures(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[Any] = []
    launch = LLMEngine._launch

    def watched(self: LLMEngine, batch: Any, number: int) -> Any:
        batches.append([item.seq.params for item in batch.items])
        return launch(self, batch, number)

    monkeypatch.setattr(LLMEngine, "_launch", watched)
    run(SCENARIOS["sampled"], folder)
    mixed = max(batches, key=len)
    temperatures = {params.temperature for params in mixed}
    assert min(temperatures) < GREEDY_BELOW < 1 < max(temperatures)
    assert len(temperatures) == len(mixed), "every row has its own"
    assert any(params.top_k for params in mixed), "no row with impossible tokens"


def test_its_tokens_are_not_the_greedy_ones(folder: Path) -> None:
    greedy = next(a.text for a in WRONG if a.path.stem == "always_greedy")
    expected = judge.expected_behaviour("sampled", folder)
    with swap("06.sample", run_source(greedy, "greedy")["sample"]):
        got = run(SCENARIOS["sampled"], folder)
    assert judge.behaviour_difference(expected, got) is not None


@pytest.mark.parametrize("name", ["no_temperature", "noise_of_the_first_row", "always_greedy"])
def test_a_faulty_library_is_no_yardstick(name: str, folder: Path) -> None:
    text = next(a.text for a in WRONG if a.exercise == "06.sample" and a.path.stem == name)
    faulty = swap("06.sample", run_source(text, name)["sample"])
    with faulty, pytest.raises(CourseError, match="differs from a dense forward"):
        judge.expected_behaviour("sampled", folder)


def test_a_number_near_a_border_is_no_workload(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_CLEAR_NOISE", 0.2)
    with pytest.raises(CourseError, match="no clear token"):
        judge.expected_behaviour("sampled", folder)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_the_judges_look_up_and_the_librarys_agree(temperature: float) -> None:
    logits = torch.randn(400, 97, generator=torch.Generator().manual_seed(3))
    arrival = SCENARIOS["sampled"].arrivals[0]._replace(temperature=temperature, seed=8, top_k=0)
    wanted, _ = judge._dense_tokens(arrival, logits)
    noise = uniform_noise([8] * 400, [len(arrival.prompt) + i for i in range(400)])
    got = sample(logits, torch.full((400,), temperature), torch.from_numpy(noise))
    assert got.tolist() == wanted
