"""From what an answer did to a grade: compares with the library and with a plain dense forward."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nanoengine.course import benchmarks, tiny
from nanoengine.course.errors import CourseError
from nanoengine.course.registry import Case, Exercise
from nanoengine.course.result import Check, Grade, shorten
from nanoengine.course.scenarios import SCENARIOS, Arrival, Observation, run
from nanoengine.course.values import Difference, without_arrays
from nanoengine.course.words import in_words
from nanoengine.layers.sampler import uniform_noise

_ENGINE = "engine: "  # how the checks of the behaviour begin
_TOLERANCE = 1e-3  # logits spread over several units; float32 sums in another order differ by 1e-5
_CLEAR = 5e-3  # the best token must lead by this, or the workload itself is unfit
_CLEAR_NOISE = 1e-4  # and a sampled token's number must be so far from the borders


class Verdict(NamedTuple):
    """One line of the judgement. remark: it passes, but the text should be read."""

    check: str
    ok: bool | None
    text: str = ""
    remark: bool = False
    detail: dict[str, Any] | None = None


def judge(
    exercise: Exercise, source: str, seen: dict[str, Any], output: str, folder: Path
) -> Grade:
    """The grade of an answer whose observation is `seen` (see `child.observe`)."""
    if "load" in seen:
        return failed(exercise, in_words(exercise, source, seen["load"], "loading it"), output)
    verdicts = _contract(exercise, source, seen["cases"])
    verdicts += _conduct(exercise, seen)
    verdicts += _behaviour(exercise, source, seen["scenarios"], folder)
    checks = _checks(verdicts)
    wrong = next((v for v in verdicts if v.ok is False), None)
    differs = next((v for v in verdicts if v.remark), None)
    if wrong is not None:
        if wrong.check.startswith(_ENGINE) and differs is not None:  # this may be why
            wrong = wrong._replace(text=f"{differs.text} {wrong.text}")
        message = shorten(f"{wrong.text} See {exercise.where}.")
        return Grade(exercise.id, "fail", 0, message, checks, output, wrong.detail)
    remark = f" It differs from the contract: {differs.text}" if differs else ""
    left = [f"{v.check} ({v.text})" for v in verdicts if v.ok is None]
    if left:
        message = f"passes all that this machine can run; not run: {'; '.join(left)}.{remark}"
        return Grade(exercise.id, "partial", exercise.points, shorten(message), checks, output)
    message = f"{_outcome(exercise)} with your function.{remark}"
    return Grade(exercise.id, "pass", exercise.points, shorten(message), checks, output)


def _outcome(exercise: Exercise) -> str:
    """What a right answer has shown."""
    benched = any(SCENARIOS[name].bench for name in exercise.scenarios)
    if benched:
        return "the benchmark reports the same numbers"
    return "the engine gives the same tokens"


def sentence(text: str) -> str:
    """With a full stop, unless it ends in a mark of its own."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def failed(exercise: Exercise, message: str, output: str = "") -> Grade:
    """A grade for an answer that could not be judged at all."""
    return Grade(exercise.id, "fail", 0, shorten(message), (), output)


def _checks(verdicts: list[Verdict]) -> tuple[Check, ...]:
    """One line a check name: the first bad verdict, else the first remark, else good."""
    lines: dict[str, Verdict] = {}
    for verdict in verdicts:
        held = lines.get(verdict.check)
        if held is None or (held.ok is not False and (verdict.ok is False or verdict.remark)):
            lines[verdict.check] = verdict
    return tuple(Check(v.check, v.ok, shorten(v.text)) for v in lines.values())


# -- the contract: exact numbers, simplest case first -------------------------------------------


def _contract(exercise: Exercise, source: str, seen: list[dict[str, Any]]) -> list[Verdict]:
    cases = exercise.cases()
    if len(seen) != len(cases):
        raise CourseError(f"{len(seen)} observed cases, {len(cases)} expected")
    return [
        _case(exercise, source, case, wanted, got)
        for case, wanted, got in zip(cases, expected_results(exercise), seen, strict=True)
    ]


@cache
def expected_results(exercise: Exercise) -> list[Any]:
    """What the library's function returns for each case, as plain data."""
    function = exercise.place().function
    function = getattr(function, "__func__", function)
    return [exercise.observe(function, exercise.arguments(c.args)) for c in exercise.cases()]


def _case(exercise: Exercise, source: str, case: Case, wanted: Any, got: dict[str, Any]) -> Verdict:
    if "error" in got:
        return Verdict(case.check, False, in_words(exercise, source, got["error"], case.situation))
    if "mutated" in got:
        text = f"{case.situation}: your function changed its {got['mutated']}: work on a copy."
        return Verdict(case.check, False, text)
    given, array = without_arrays(got["value"])
    difference = exercise.compare(case, without_arrays(wanted)[0], given)
    if difference is None and array:
        text = f"the contract says list, you gave a {array}: add .tolist()"
        difference = Difference(text, binding=False)
    if difference is None:
        return Verdict(case.check, True)
    text = sentence(f"{case.situation}: {difference.text}")
    detail = {"args": list(case.args), "expected": wanted, "got": given}
    return Verdict(case.check, not difference.binding, text, not difference.binding, detail)


# -- conduct: what an answer must leave alone ---------------------------------------------------


def _conduct(exercise: Exercise, seen: dict[str, Any]) -> list[Verdict]:
    if seen["tampered"]:
        text = (
            f"your code replaced {seen['tampered']}: define {exercise.function} and leave the rest "
            "of Python and nanoengine as it is."
        )
        return [Verdict("leaves the rest alone", False, text)]
    if seen["threads"] > 0:
        text = f"your code left {seen['threads']} thread(s) running: join them before you return."
        return [Verdict("leaves the rest alone", False, text)]
    return [Verdict("leaves the rest alone", True)]


# -- behaviour: the engine with the answer swapped in -------------------------------------------


@cache
def expected_behaviour(name: str, folder: Path) -> Observation:
    """A scenario with the library's functions, checked against a plain dense forward.

    Raises CourseError when the two disagree: then the library is wrong, not the student.
    """
    scenario = SCENARIOS[name]
    seen = run(scenario.on_one_rank(), folder)
    weights = tiny.make_weights()
    objection = benchmarks.objection(seen.report, weights) if scenario.bench else None
    if objection:
        raise CourseError(f"scenario {name!r}: {objection}")
    for index, arrival in enumerate(scenario.arrivals):
        request = f"request {index}"
        tokens = seen.tokens[request]
        dense = tiny.dense_logits(weights, [*arrival.prompt, *tokens[:-1]])
        dense = dense[len(arrival.prompt) - 1 :]
        wanted, clear = _dense_tokens(arrival, dense)
        difference = np.abs(dense.numpy() - seen.logits[request]).max()
        if not clear:
            raise CourseError(f"scenario {name!r}, {request}: no clear token; change its prompt")
        if wanted != tokens or difference > _TOLERANCE or seen.wrong_write:
            raise CourseError(
                f"scenario {name!r}, {request}: the library differs from a dense forward"
            )
    return seen


def _dense_tokens(arrival: Arrival, logits: torch.Tensor) -> tuple[list[int], bool]:
    """The tokens that [n, VOCAB] dense logits lead to, and whether rounding could not change one.

    Shares no code with the library's sampler, but for the noise.
    """
    ranked = torch.sort(logits, dim=-1, descending=True).values
    if not arrival.temperature:
        return logits.argmax(-1).tolist(), float((ranked[:, 0] - ranked[:, 1]).min()) > _CLEAR
    clear, scaled = True, logits.double() / arrival.temperature
    if arrival.top_k:
        last, next_one = ranked[:, arrival.top_k - 1], ranked[:, arrival.top_k]
        clear = float((last - next_one).min()) > _CLEAR
        scaled[logits < last[:, None]] = -torch.inf
    borders = scaled.softmax(-1).cumsum(-1)
    positions = [len(arrival.prompt) + i for i in range(len(logits))]
    noise = torch.from_numpy(uniform_noise([arrival.seed] * len(logits), positions)).double()
    clear = clear and float((borders - noise[:, None]).abs().min()) > _CLEAR_NOISE
    return (borders <= noise[:, None]).sum(-1).tolist(), clear


def _behaviour(
    exercise: Exercise, source: str, seen: dict[str, dict[str, Any]], folder: Path
) -> list[Verdict]:
    verdicts = [
        _scenario(exercise, source, name, seen[name], folder) for name in exercise.scenarios
    ]
    calls = sum(int(got.get("value", {}).get("calls", 1)) for got in seen.values())
    if verdicts and calls == 0:
        text = "the engine never called your function: did other code take its place?"
        verdicts.append(Verdict(f"{_ENGINE}calls", False, text))
    return verdicts


def _scenario(
    exercise: Exercise, source: str, name: str, got: dict[str, Any], folder: Path
) -> Verdict:
    check, situation = f"{_ENGINE}{name}", f"in the engine, {SCENARIOS[name].situation}"
    if "not run" in got:
        return Verdict(check, None, got["not run"])
    if "error" in got:
        return Verdict(check, False, in_words(exercise, source, got["error"], situation))
    if "value" not in got:
        text = f"{situation}: your function changed its {got['mutated']}: work on a copy."
        return Verdict(check, False, text)
    try:
        observed = Observation.from_plain(got["value"])
    except (ValueError, KeyError, TypeError):
        return Verdict(check, False, f"{situation}: the engine gave no usable result.")
    found = behaviour_difference(expected_behaviour(name, folder), observed)
    return Verdict(check, found is None, sentence(f"{situation}: {found}") if found else "")


def behaviour_difference(expected: Observation, got: Observation) -> str | None:
    """The first difference of two runs: the pool, the earliest token of a request, or a write."""
    if expected.report:
        return benchmarks.difference(expected.report, got.report)
    if got.num_blocks != expected.num_blocks:
        return f"the pool should have {expected.num_blocks} blocks, it has {got.num_blocks}"
    for request, tokens in expected.tokens.items():
        mine, logits = got.tokens.get(request, []), got.logits.get(request)
        for index, token in enumerate(tokens):
            given = mine[index] if index < len(mine) else None
            wanted_row = expected.logits[request][index]
            row = logits[index] if logits is not None and index < len(logits) else None
            where = f"output token {index + 1} of {request}"
            if row is not None and not np.isfinite(row).all():
                return f"{where}: the logits are NaN: attention read a slot that nobody wrote"
            if given != token:
                return f"{where} should be {token}, it is {given}"
            if row is None or float(np.abs(row - wanted_row).max()) > _TOLERANCE:
                return f"{where}: the token is right but its logits are not"
        if len(mine) != len(tokens):
            return f"{request} should get {len(tokens)} tokens, it got {len(mine)}"
    return got.wrong_write
