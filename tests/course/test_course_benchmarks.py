"""Grading a benchmark's parts: the invented machine, the second opinion, two reports compared."""

import copy
import itertools
import json
import random
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nanoengine.bench import metrics, roofline
from nanoengine.course import benchmarks, exercises, questions, swap, tiny
from nanoengine.course.benchmarks import Report, difference, known_machine, objection
from nanoengine.course.lessons.claims_07 import percent_above
from nanoengine.course.lessons.questions_07 import OUTPUT_TOKENS, PROMPT_TOKENS, REQUESTS
from nanoengine.course.quiz import ValueQuestion
from nanoengine.course.scenarios import SCENARIOS
from nanoengine.course.source import run_source
from nanoengine.course.stubs import solution_source

RECORDED = Path(__file__).parent.parent.parent / "figures" / "data"
NAMES = ("benchmark", "benchmark in chunks")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def reports(folder: Path) -> dict[str, Report]:
    return {name: benchmarks.run(SCENARIOS[name].bench, folder) for name in NAMES}


def test_the_same_report_every_time_and_nothing_is_left(
    reports: dict[str, Report], folder: Path
) -> None:
    clock, copies, threads = (
        time.perf_counter,
        roofline.measure_copy_bandwidth,
        threading.enumerate(),
    )
    again = {name: benchmarks.run(SCENARIOS[name].bench, folder) for name in NAMES}
    assert again == reports
    assert time.perf_counter is clock
    assert roofline.measure_copy_bandwidth is copies
    assert threading.enumerate() == threads
    assert json.loads(json.dumps(reports)) == reports, "it travels as JSON"


def test_the_clock_stands_still_between_looks() -> None:
    with known_machine():
        looks = [time.perf_counter() for _ in range(50)]
    with known_machine():
        time.sleep(0.01)
        assert [time.perf_counter() for _ in range(50)] == looks
    assert all(a < b for a, b in itertools.pairwise(looks))


def test_both_benchmarks_together_reach_every_branch(reports: dict[str, Report]) -> None:
    plain, chunks = (reports[name]["events"] for name in NAMES)
    assert any(a[2] < b[1] for a, b in itertools.pairwise(plain)), "no waiting between runs"
    assert any(a[2] > b[1] for a, b in itertools.pairwise(chunks)), "no overlap"
    assert any(is_prefill and new == 0 for is_prefill, *_, new in chunks), "no chunk without token"
    kinds = [event[0] for event in chunks]
    assert kinds != sorted(kinds, reverse=True), "no prefill after a decode run"
    for name in NAMES:
        counts = [count for _, count in reports[name]["requests"]]
        assert len(set(counts)) > 1, "all outputs end at once"
    assert 1 in [count for _, count in reports["benchmark"]["requests"]]


def test_the_library_has_no_objection_against_it(reports: dict[str, Report]) -> None:
    weights = tiny.make_weights()
    for report in reports.values():
        assert objection(report, weights) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"output_tok_s": 1.01}, "output_tok_s"),
        ({"prefill_tok_s": 1.01}, "prefill_tok_s"),
        ({"decode_tok_s": 0.99}, "decode_tok_s"),
        ({"floor_s": 1.001}, "floor_s"),
    ],
)
def test_a_wrong_number_of_the_library_is_objected_to(
    change: dict[str, float], words: str, reports: dict[str, Report]
) -> None:
    for report in reports.values():
        wrong = copy.deepcopy(report)
        for name, factor in change.items():
            wrong[name] *= factor
        found = objection(wrong, tiny.make_weights())
        assert found is not None
        assert words in found
        told = difference(report, wrong)
        assert told is not None
        assert words in told


def test_wrong_tokens_are_objected_to(reports: dict[str, Report]) -> None:
    wrong = copy.deepcopy(reports["benchmark"])
    wrong["outputs"][2][0] = (wrong["outputs"][2][0] + 1) % tiny.VOCAB
    assert "request 2" in str(objection(wrong, tiny.make_weights()))
    assert difference(reports["benchmark"], wrong) == "the output of request 2 is another one"


def test_reports_of_other_requests_differ(reports: dict[str, Report]) -> None:
    right = reports["benchmark"]
    assert difference(right, right) is None
    assert difference(right, {}) == "it should serve 5 requests"
    wrong = copy.deepcopy(right)
    wrong["requests"][1][0][0] += 1
    assert difference(right, wrong) == "request 1 is another one"
    assert "floor_s should be" in str(difference(right, {**right, "floor_s": None}))


@pytest.mark.parametrize("exercise_id", [e for e in exercises if e.startswith("07")])
def test_the_swapped_function_decides_the_report(
    exercise_id: str, reports: dict[str, Report], folder: Path
) -> None:
    """The library's own text gives the same report; a changed result gives another one."""
    name = exercises[exercise_id].function
    function = run_source(solution_source(exercises[exercise_id]), "answer")[name]

    def changed(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        if isinstance(result, float):
            return result * 2
        if isinstance(result, list):
            return result[::-1]
        return result._replace(decode_tok_s=result.decode_tok_s + 1)

    bench = SCENARIOS["benchmark"].bench
    with swap(exercise_id, function):
        assert benchmarks.run(bench, folder) == reports["benchmark"]
    with swap(exercise_id, changed):
        assert difference(reports["benchmark"], benchmarks.run(bench, folder)) is not None


# -- the numbers in the questions --------------------------------------------------------------


def recorded(engine: str) -> dict[str, Any]:
    path = RECORDED / f"bench_qwen3-0.6b_h200_{engine}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def said(question_id: str) -> str:
    question: Any = questions[question_id]
    return " ".join([question.text, *(f"{o.text} {o.why}" for o in question.options)])


def assert_said(text: str, *numbers: float) -> None:
    for number in numbers:
        shown = f"{number:,.0f}" if number > 100 else f"{number:g}"
        assert shown in text, f"{shown} is not in: {text}"


def test_claim_a_is_made_of_true_numbers() -> None:
    nano, sglang = (recorded(n)["output_tok_s"] for n in ("nano-vllm", "mini-sglang"))
    text = said("07.q.claim_a")
    best, first = max(nano["runs"]), sglang["runs"][0]
    assert_said(text, best, first, percent_above(best, first), round(best / first, 2))
    assert f"{percent_above(sglang['median'], nano['median'])} % ahead" in text


def test_claim_b_is_made_of_true_numbers() -> None:
    nano, vllm = recorded("nano-vllm"), recorded("vllm")
    short = [r["decode_tok_s_runs"]["256@193"][0] for r in (nano, vllm)]
    assert_said(said("07.q.claim_b"), *short, vllm["output_tok_s"]["median"])
    assert vllm["output_tok_s"]["median"] > nano["output_tok_s"]["median"], "vLLM was ahead"
    assert vllm["weights"] == nano["weights"] == "random"


def test_claim_c_is_made_of_true_numbers() -> None:
    nano, peer = recorded("nano-vllm"), recorded("transformers-cb")
    mine, theirs = nano["output_tok_s"]["median"], peer["output_tok_s"]["median"]
    served = sum(peer["output_tok_s_without_setup"]) / len(peer["output_tok_s_without_setup"])
    text = said("07.q.claim_c")
    assert_said(text, mine, theirs, round(mine / theirs, 1), round(mine / served, 1))
    assert_said(text, served, peer["output_tokens"])
    assert all(round(seconds) in (11, 12) for seconds in peer["setup_s"])


@pytest.mark.parametrize("seed", range(20))
def test_each_usual_misreading_of_the_fair_questions_has_its_words(seed: int) -> None:
    runs, timer = questions["07.q.fair_runs"], questions["07.q.fair_timer"]
    assert isinstance(runs, ValueQuestion)
    assert isinstance(timer, ValueQuestion)
    drawn = runs.draw(random.Random(seed))
    warm = (statistics.mean(drawn[name][1:]) for name in "BA")
    assert "left out" in runs.explain(drawn, percent_above(*warm))
    drawn = timer.draw(random.Random(seed))
    below = round(100 * (1 - drawn["other"] / (drawn["all"] - drawn["setup"])))
    assert "below" in timer.explain(drawn, below)


def test_the_articles_totals() -> None:
    work = recorded("nano-vllm")["workload"]
    assert (work["requests"], work["prompt_tokens"]) == (REQUESTS, PROMPT_TOKENS)
    assert work["output_tokens"] == OUTPUT_TOKENS


def test_events_of_a_report_are_those_the_rates_are_made_of(reports: dict[str, Report]) -> None:
    for report in reports.values():
        events = [
            metrics.RunEvent(*event[:4], tuple(map(str, range(event[4]))))
            for event in report["events"]
        ]
        rates = metrics.throughput(events)
        assert rates.output_tok_s == pytest.approx(report["output_tok_s"])
        assert sum(len(e.request_ids) for e in events) == report["output_tokens"]
