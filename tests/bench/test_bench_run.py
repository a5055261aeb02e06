"""`nanoengine bench` on a tiny shape: the JSON, the counts, the refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nanoengine import cli
from nanoengine.bench import BenchError, measure, report, run
from nanoengine.bench.check import compare_with_dense, spread
from nanoengine.bench.measure import Measurement, Plan, decode_step_ms, one_repeat, timed_run
from nanoengine.bench.model import Model, load_transformers
from nanoengine.bench.peers import NanoengineSide, TransformersSide, require_peer
from nanoengine.bench.shapes import write_config
from nanoengine.bench.workload import Workload, make_workload

CPU = torch.device("cpu")
SMALL = ["--shape", "tiny", "--device", "cpu", "--requests", "5", "--input", "3-9"]
SMALL += ["--output", "2-7", "--repeats", "2"]
KEYS = {
    "benchmark", "engine", "shape", "device", "versions", "commit", "dirty", "seed",
    "output_tok_s", "decode_step_ms", "batch1_ms", "prefill_tok_s", "floor_s",
    "fraction_of_floor", "workload", "breakdown", "check", "peer", "ratio",
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = write_config("tiny", tmp_path_factory.mktemp("tiny"))
    return Model("tiny", folder, 0, CPU, "float32", 512)


class CountingSide:
    """Stands for an engine; notes what it is asked for."""

    name = "counting"

    def __init__(self, missing: int = 0) -> None:
        self.missing = missing
        self.asked: list[Workload] = []

    def run(self, requests: Workload, temperature: float) -> list[list[int]]:
        self.asked.append(requests)
        return [[0] * (count - self.missing) for _, count in requests]

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def small_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine's rates are not what is tested here."""
    monkeypatch.setattr(measure, "_ALONE_TOKENS", 4)
    monkeypatch.setattr("nanoengine.bench.roofline.measure_copy_bandwidth", lambda device: 1e9)
    monkeypatch.setattr(
        "nanoengine.bench.roofline.measure_matmul_flops", lambda device, dtype: 1e10
    )


def test_both_sides_in_one_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert cli.main(["bench", *SMALL, "--peer", "transformers", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result == json.loads(file.read_text("utf-8"))
    assert result.keys() >= KEYS
    work = make_workload(0, 5, 3, 9, 512, 2, 7)
    assert result["workload"]["prompt_tokens"] == sum(len(prompt) for prompt, _ in work)
    total = sum(count for _, count in work)
    for side in (result, result["peer"]):
        assert side["output_tokens"] == total
        assert len(side["output_tok_s"]["runs"]) == 2
        assert min(side["output_tok_s"]["runs"]) > 0
        assert side["output_tok_s"]["median"] == pytest.approx(
            sum(side["output_tok_s"]["runs"]) / 2
        )
        assert side["prefill_tok_s"] > 0
    assert (result["engine"], result["peer"]["engine"]) == ("nanoengine", "transformers")
    assert result["benchmark"] == "custom"
    assert result["check"]["tokens"] == total
    assert result["check"]["ok"] is True
    assert all(len(line) <= 80 for line in lines[:-1])


def test_the_rest_is_named_only_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *SMALL]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    for equal, ending in ((9, "a dense forward's"), (8, "forward's, the rest within 1.5e-03")):
        result["check"] |= {"equal_to_dense": equal, "tokens": 9, "largest_relative_gap": 0.0015}
        assert list(report.table(result))[-1].endswith(ending)


def test_a_real_folder_without_a_peer(text_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bench", "--model", str(text_model), *SMALL[2:], "--check", "0", "--no-overlap"]
    assert cli.main(argv) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["peer"] is None
    assert "check" not in result
    assert result["weights"] == "real"
    assert result["options"]["overlap"] is False


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--shape", "tiny", "--peer", "vllm"], "peer 'vllm' is not installed"),
        (["--shape", "tiny", "--input", "900-4000"], "max_model_len"),
        (["--shape", "tiny", *SMALL[2:], "--json", "/no/such/folder/f"], "cannot be written"),
    ],
)
def test_a_refusal_is_one_line(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "vllm" in argv and _installed("vllm"):
        pytest.skip("vllm is installed")
    assert cli.main(["bench", "--device", "cpu", *argv]) == cli.EXIT_ERROR
    assert words in capsys.readouterr().err.splitlines()[-1]


def _installed(peer: str) -> bool:
    try:
        require_peer(peer)
    except BenchError:
        return False
    return True


@pytest.mark.parametrize(
    "argv",
    [
        ["--input", "9-3"],
        ["--input", "x"],
        ["--output", "0-3"],
        ["--decode-steps", "256"],
        ["--requests", "0"],
        ["--repeats", "-1"],
        ["--peer", "nobody"],
        ["--shape", "nothing"],
        ["--shape", "tiny", "--model", "x"],
    ],
)
def test_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["bench", *argv])
    assert exit_info.value.code == cli.EXIT_USAGE
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "target",
    ["workload.make_workload", "metrics.throughput", "roofline.floor_seconds"],
)
def test_exercise_targets_are_called_through_their_modules(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(f"nanoengine.bench.{target}", swapped)
    with pytest.raises(ZeroDivisionError):
        cli.main(["bench", *SMALL])


def test_the_defaults_are_the_article() -> None:
    args = run._parse([])
    assert run._name(args) == "article"
    assert run._name(run._parse(["--seed", "1"])) == "custom"
    assert run._name(run._parse(["--input", "100-1023"])) == "custom"
    assert (args.repeats, args.temperature, args.check) == (3, 0.6, 16)


def test_missing_tokens_are_an_error() -> None:
    with pytest.raises(BenchError, match=r"counting gave request 1 4 tokens instead of 5"):
        timed_run(_short_second(), [([1], 5), ([1], 5)], 0.0)


def test_a_grader_s_forked_child_leaves_the_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad_fork(device: object = None) -> None:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)  # so it is in such a child
    monkeypatch.setattr(torch.cuda, "synchronize", bad_fork)
    assert timed_run(_short_second(), [([1], 5), ([1], 4)], 0.0) > 0


def _short_second() -> CountingSide:
    side = CountingSide()

    def run_short(requests: Workload, temperature: float) -> list[list[int]]:
        return [[0] * 5, [0] * 4]

    side.run = run_short  # type: ignore[method-assign]
    return side


def test_no_two_runs_share_a_prompt() -> None:
    """Else a prefix cache would skip work on one side."""
    work = make_workload(num_requests=4, min_len=20, max_len=30)
    plan = Plan(work, 10001, 0.6, 3, [(4, 140)])
    side = CountingSide()
    measure.measure([side], plan)
    prompts = [tuple(prompt) for requests in side.asked for prompt, _ in requests]
    assert len(prompts) == len(set(prompts))
    assert [len(p) for p, _ in side.asked[2]] == [len(p) for p, _ in work]
    assert side.asked[2] == work  # the first repeat has the workload's own ids


def test_turns_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def note(side: Any, result: Measurement, plan: Plan, repeat: int) -> None:
        order.append(f"{side.name}{repeat}")

    monkeypatch.setattr(measure, "one_repeat", note)
    one, two = CountingSide(), CountingSide()
    one.name, two.name = "a", "b"  # type: ignore[misc]
    measure.measure([one, two], Plan(make_workload(num_requests=2), 10001, 0.6, 3))
    assert order == ["a0", "b0", "b1", "a1", "a2", "b2"]


def test_a_decode_step_is_the_difference_of_two_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([5.0, 1.0])
    asked: list[tuple[int, int, int]] = []

    def timed(side: Any, requests: Workload, temperature: float) -> float:
        asked.append((len(requests), len(requests[0][0]), requests[0][1]))
        return next(seconds)

    monkeypatch.setattr(measure, "timed_run", timed)
    plan = Plan(make_workload(num_requests=1), 10001, 0.6, 1)
    assert decode_step_ms(CountingSide(), plan, 256, 193) == pytest.approx(4000 / 256)
    assert asked == [(256, 64, 257), (256, 64, 1)]
    with pytest.raises(BenchError, match="too short"):
        decode_step_ms(CountingSide(), plan, 1, 129)


def test_one_repeat_counts_what_was_asked() -> None:
    work = make_workload(num_requests=4, min_len=20, max_len=30)
    result = Measurement("x")
    one_repeat(CountingSide(), result, Plan(work, 10001, 0.6, 1), 0)
    assert result.output_tokens == sum(count for _, count in work)


def test_transformers_serves_each_request_its_own_length(tiny: Model) -> None:
    side = TransformersSide(tiny, {})
    ours = NanoengineSide(tiny, {})
    work = make_workload(1, 4, 2, 12, 512)
    theirs = side.run(work, 0.0)
    assert [len(tokens) for tokens in theirs] == [count for _, count in work]
    assert theirs == ours.run(work, 0.0)  # left padding changes no token
    assert side.run(work, 0.6) != theirs  # it samples when it is asked to
    side.close()
    ours.close()


def test_the_dense_check_finds_a_wrong_token(tiny: Model) -> None:
    side = NanoengineSide(tiny, {})
    work = make_workload(2, 3, 4, 8, 512)
    outputs = side.run(work, 0.0)
    oracle = load_transformers(tiny)
    assert compare_with_dense(work, outputs, oracle)["ok"] is True
    outputs[1][2] = (outputs[1][2] + 1) % 512
    with pytest.raises(BenchError, match="request 1, output token 2"):
        compare_with_dense(work, outputs, oracle)
    with torch.no_grad():
        oracle.model.norm.weight.fill_(torch.nan)
    with pytest.raises(BenchError, match="request 0"):
        compare_with_dense(work, side.run(work, 0.0), oracle)
    side.close()


def test_checked_requests_come_from_all_over() -> None:
    work = make_workload(num_requests=256, min_len=1, max_len=4)
    chosen = spread(work, 16)
    assert chosen == [work[i] for i in range(0, 256, 16)]
    assert spread(work[:5], 16) == work[:5]
    assert spread(work, 0) == []
