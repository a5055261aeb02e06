"""Behaviour of a benchmark: `nanoengine bench` itself, on an invented machine.

Its speeds are known, and its clock moves only when somebody looks at it: nothing depends on how
fast this computer is.
"""

import contextlib
import io
import itertools
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nanoengine.course import tiny
from nanoengine.course.values import first_difference

COPY_BYTES_PER_S = 1e7  # the invented machine's
FLOPS_PER_S = 2e8
_TICKS = (1, 2, 3, 5, 8)  # sixty-fourths of a second: their sums are exact
_FEW = 4
_CLOSE = 1e-9
_ENGINE = (
    *("--device=cpu", "--dtype=float32", "--attention-backend=reference", "--enforce-eager"),
    *("--kvcache-block-size=4", "--num-kvcache-blocks=128", "--check=0", "--temperature=0"),
)
Report = dict[str, Any]


def run(argv: tuple[str, ...], folder: Path) -> Report:
    """The numbers of `nanoengine bench ARGV` for the grading model, the same in every run.

    Also "requests" and "outputs", what the engine was asked for and gave, and "events", the
    recorded runs of the model, each [is_prefill, start, end, num_tokens, new tokens].
    """
    from nanoengine.bench.run import benchmark

    with known_machine() as seen:
        result = benchmark([f"--model={folder}", *_ENGINE, *argv])
    found, work = result["breakdown"], result["workload"]
    return {
        "requests": [[list(map(int, prompt)), int(count)] for prompt, count in seen["requests"]],
        "outputs": seen["outputs"],
        "events": seen["events"],
        "prompt_tokens": work["prompt_tokens"],
        "output_tokens": work["output_tokens"],
        **{name: found[name] for name in ("output_tok_s", "prefill_tok_s", "decode_tok_s")},
        "floor_s": result["floor_s"],
        "decode_s of the floor": result["floor"]["decode_s"],
        "fraction_of_floor": result["fraction_of_floor"],
        "floor": result["floor"],
    }


@contextlib.contextmanager
def known_machine() -> Iterator[dict[str, list[Any]]]:
    """Inside, time passes only by looking at the clock, and the machine's speeds are invented.

    Gives what the benchmark asks of the engine, filled while it runs.
    """
    from tqdm import tqdm

    from nanoengine import environment
    from nanoengine.bench import measure, metrics, peers, roofline

    seen: dict[str, list[Any]] = {"requests": [], "outputs": [], "events": []}
    serve, event_of, repeat = peers.NanoengineSide.run, metrics.event_of, measure.one_repeat

    def one_repeat(side: Any, result: Any, plan: Any, number: int) -> None:
        seen["requests"] = plan.workload
        repeat(side, result, plan, number)

    def served(side: Any, requests: Any, temperature: float) -> Any:
        outputs = serve(side, requests, temperature)
        if requests is seen["requests"]:
            seen["outputs"] = outputs
        return outputs

    def noted(record: Any) -> Any:
        # as on a GPU, where a run ends when its tokens can be read: then runs overlap
        event = event_of(record)._replace(end=record.applied)
        seen["events"].append([*event[:4], len(event.request_ids)])
        return event

    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (time, "perf_counter", _clock()),
            (tqdm, "monitor_interval", 0),  # it would start a thread
            (roofline, "measure_copy_bandwidth", lambda device: COPY_BYTES_PER_S),
            (roofline, "measure_matmul_flops", lambda device, dtype: FLOPS_PER_S),
            (environment, "git_state", dict),
            (measure, "_ALONE_TOKENS", _FEW),  # what one request alone gets is not looked at
            (measure, "one_repeat", one_repeat),
            (peers.NanoengineSide, "run", served),
            (metrics, "event_of", noted),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        yield seen


def _clock() -> Callable[[], float]:
    """A clock that has run for a while and moves on, by uneven steps, at every look."""
    draw = random.Random(64)
    ticks = itertools.accumulate(itertools.repeat(6400), lambda now, _: now + draw.choice(_TICKS))
    return lambda: next(ticks) / 64


# -- a second opinion, so that a fault of the library cannot hide -------------------------------


def objection(report: Report, weights: tiny.Weights) -> str | None:
    """What is wrong with the library's own report, found by other means; None: nothing."""
    for index, ((prompt, _), output) in enumerate(
        zip(report["requests"], report["outputs"], strict=True)
    ):
        dense = tiny.dense_logits(weights, [*prompt, *output[:-1]])[len(prompt) - 1 :]
        if dense.argmax(-1).tolist() != output:
            return f"request {index} differs from a dense forward"
    names = ("output_tok_s", "prefill_tok_s", "decode_tok_s")
    for name, rate in zip(names, sliced_rates(report["events"]), strict=True):
        if not _close(rate, report[name]):
            return f"{name} is {report[name]}, slice by slice it is {rate}"
    floor = report["floor"]
    seconds = step_by_step(
        [(len(prompt), count) for prompt, count in report["requests"]],
        floor["decode_weight_bytes"],
        floor["kv_bytes_per_token"],
    )
    seconds += floor["prefill_flops"] / FLOPS_PER_S
    if not _close(seconds, report["floor_s"]):
        return f"floor_s is {report['floor_s']}, step by step it is {seconds}"
    return None


def sliced_rates(events: list[list[Any]]) -> tuple[float, float, float]:
    """Output, prefill and decode tokens a second: each slice of time is its first owner's."""
    cuts = sorted({time for event in events for time in event[1:3]})
    seconds = {True: 0.0, False: 0.0}
    for left, right in itertools.pairwise(cuts):
        owner = next((e for e in events if e[1] <= left and right <= e[2]), None)
        if owner is not None:
            seconds[owner[0]] += right - left
    decoded = sum(e[4] for e in events if not e[0])
    return (
        sum(e[4] for e in events) / (cuts[-1] - cuts[0]),
        sum(e[3] for e in events if e[0]) / seconds[True],
        decoded / seconds[False],
    )


def step_by_step(lengths: list[tuple[int, int]], weight_bytes: int, kv_bytes: int) -> float:
    """Seconds that the invented machine needs to read what each decode step reads."""
    moved = 0
    contexts = [[prompt + 1, count - 1] for prompt, count in lengths]
    while contexts := [c for c in contexts if c[1] > 0]:
        moved += weight_bytes + kv_bytes * sum(context for context, _ in contexts)
        contexts = [[context + 1, left - 1] for context, left in contexts]
    return moved / COPY_BYTES_PER_S


# -- two reports -------------------------------------------------------------------------------


def difference(expected: Report, got: Report) -> str | None:
    """The first difference of two reports, in words."""
    if len(got.get("requests", ())) != len(expected["requests"]):
        return f"it should serve {len(expected['requests'])} requests"
    for name, what in (("requests", "request"), ("outputs", "the output of request")):
        index = first_difference(expected[name], got[name])
        if index is not None:
            return f"{what} {index} is another one"
    for name, value in expected.items():
        if isinstance(value, int | float) and not _close(value, got.get(name)):
            return f"{name} should be {value:g}, it is {got.get(name)!r:.20}"
    return None


def _close(expected: float, got: Any) -> bool:
    return isinstance(got, int | float) and abs(got - expected) <= _CLOSE * max(1.0, abs(expected))
