"""`nanoengine tour` and `nanoengine doctor`."""

import json
import re
from pathlib import Path

import pytest

from nanoengine import cli
from nanoengine.commands import terminal, tour
from nanoengine.commands.doctor import examine, report
from nanoengine.commands.tour_screen import Screen
from nanoengine.engine.inputs import DecodeInputs, PrefillInputs
from nanoengine.engine.record import StepRecord
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams

PROMPT = "The quick brown fox"


def numbers_after(name: str, out: str) -> list[int]:
    """All integers of the rows called `name`, in order."""
    rows = re.findall(rf"^\s*{name}((?: +[\d|]+)+)$", out, re.MULTILINE)
    return [int(number) for row in rows for number in re.findall(r"\d+", row)]


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[StepRecord]:
    """The records of the tour that the test runs, its warm-up included."""
    kept: list[StepRecord] = []

    def make(*, on_step: object, **options: object) -> LLM:
        def both(record: StepRecord) -> None:
            kept.append(record)
            on_step(record)  # type: ignore[operator]

        return LLM(on_step=both, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(tour, "LLM", make)
    return kept


def show(model: Path, *argv: str) -> None:
    assert cli.main(["tour", PROMPT, "--model", str(model), *argv]) == 0


def test_it_shows_the_integers_of_the_run(
    text_model: Path, records: list[StepRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    show(text_model)
    out = capsys.readouterr().out
    prefill, decode = (record.inputs for record in records[2:4])  # two runs were the warm-up
    assert isinstance(prefill, PrefillInputs)
    assert isinstance(decode, DecodeInputs)
    assert prefill.slot_mapping[0] != prefill.positions[0]
    assert numbers_after("input_ids", out) == prefill.input_ids
    assert numbers_after("positions", out) == prefill.positions
    assert numbers_after("slot_mapping", out) == prefill.slot_mapping
    for name in ("cu_seqlens_q", "cu_seqlens_k"):
        assert f"{name} {getattr(prefill, name)}" in out
    for name in ("input_ids", "positions", "slot_mapping", "context_lens", "block_tables"):
        assert re.search(rf"^    {name} +{re.escape(str(getattr(decode, name)))}", out, re.M)


def test_the_five_steps_come_in_order_twice(
    text_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show(text_model)
    names = re.findall(r"^  (\d) ([a-z_]+)", capsys.readouterr().out, re.MULTILINE)
    one_run = ["prepare", "run_model", "compute_logits", "sample", "reset"]
    assert names == [(str(i), name) for i, name in enumerate(one_run, start=1)] * 2


def test_probabilities_are_those_of_the_logits(
    text_model: Path, records: list[StepRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    show(text_model, "--temperature", "0.5")
    rows = re.findall(r"^    ([* ]) +(\d+)\. +\S+ +(\d\.\d+)", capsys.readouterr().out, re.M)
    logits = records[2].logits
    assert logits is not None
    probs = (logits[0] / 0.5).softmax(-1)
    assert [float(row[2]) for row in rows[:5]] == [
        pytest.approx(float(p), abs=6e-4) for p in probs.topk(5).values
    ]
    token = records[2].tokens[0]
    assert token is not None
    taken = next(row for row in rows if row[0] == "*")
    assert float(taken[2]) == pytest.approx(float(probs[token]), abs=6e-4)


def test_a_rerun_shows_the_prefix_cache(
    text_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show(text_model)
    match = re.search(
        r"(\d+) of (\d+) prompt tokens came from", " ".join(capsys.readouterr().out.split())
    )
    assert match is not None
    assert int(match[1]) == (int(match[2]) - 1) // 4 * 4


@pytest.mark.parametrize(
    "argv",
    [
        ("--max-tokens", "1"),
        ("--max-num-batched-tokens", "5"),
        ("--block-size", "16"),
        ("--no-enforce-eager", "--max-num-seqs", "4"),
        ("--temperature", "0", "--overlap"),
    ],
)
def test_it_fits_80_columns_plainly_whatever_is_asked(
    argv: tuple[str, ...], text_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show(text_model, *argv)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("EVERY FURTHER"))
    end = next(i for i, line in enumerate(lines) if line.startswith("TIME"))
    wide = [line for line in lines[: start + 1] + lines[end:] if terminal.columns_of(line) > 80]
    assert wide == []
    assert len(lines) <= 75


def test_a_long_prompt_is_shortened(text_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tour", "x y " * 100, "--model", str(text_model), "--max-tokens", "2"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"\.\.\. \d+ more tokens \.\.\.", out)
    assert len(out.splitlines()) <= 75


def test_a_record_without_inputs_is_refused(text_model: Path) -> None:
    from nanoengine.engine.sequence import Batch
    from nanoengine.errors import EngineError

    with LLM(text_model) as llm, pytest.raises(EngineError, match="holds no inputs"):
        Screen(llm).step(1, StepRecord(0, Batch([], True)), SamplingParams())


def test_styles_need_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert terminal.bold("a") == "\x1b[1ma\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.bold("a") == "a"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert terminal.bold("a") == "a"


def test_columns_hold_wide_characters() -> None:
    assert terminal.columns_of(terminal.right("今天", 6)) == 6
    assert terminal.columns_of(terminal.right("今天今天", 6)) == 6
    assert terminal.visible(" a\n\t") == "_a\\n\\t"
    assert terminal.bar(0.001, 10) == "."
    assert terminal.bar(0.0, 10) == ""
    assert terminal.bar(1.0, 10) == "#" * 10


def test_doctor_reports_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor", "--json"])
    facts = json.loads(capsys.readouterr().out)
    import torch

    assert facts["versions"]["torch"] == torch.__version__
    assert facts["attention"]["backend"] in ("reference", "native", "triton")
    assert facts["attention"]["reason"]
    assert facts["cpu"]["torch_threads"] == torch.get_num_threads()
    assert facts.keys() == examine().keys()


def test_doctor_names_a_damaged_model_and_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from nanoengine.classroom import ClassroomModelError
    from nanoengine.commands import doctor

    def damaged(folder: Path) -> None:
        raise ClassroomModelError("model.safetensors is damaged; install again")

    monkeypatch.setattr(doctor, "verify_folder", damaged)
    monkeypatch.setattr(doctor, "classroom_folder", Path)
    assert cli.main(["doctor"]) == cli.EXIT_ERROR
    assert "PROBLEM" in capsys.readouterr().out


def test_doctor_survives_a_system_that_tells_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nanoengine.environment.memory_bytes", lambda: (None, None))
    facts = examine() | {"models": {}, "problems": []}
    lines = list(report(facts))
    assert any("unknown on this system" in line for line in lines)
    assert any("nanoengine fetch smollm2" in line for line in lines)
