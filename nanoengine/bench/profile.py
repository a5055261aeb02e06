"""Where a decode step's time goes: matrix products, attention, other kernels, gaps, the host.

The answer comes from torch's profiler. A profiled step is slower than an ordinary one, so the
same number of steps is also timed without it.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from nanoengine.bench import BenchError
from nanoengine.bench.measure import Plan
from nanoengine.bench.peers import NanoengineSide
from nanoengine.sampling_params import SamplingParams

_STEPS = 32  # decode steps of each of the two parts, timed and profiled
_LAUNCHES = 7  # steps before them whose launching is timed
_SEED = 6000
# A kernel (on a CPU: an operator) belongs to the first group that has a part of its name.
_GROUPS: dict[str, tuple[str, ...]] = {
    "matrix products": (
        *("_gemv", "_skinny", "_split_k", "_gated", "gemm", "nvjet", "cutlass", "::linear"),
    ),
    "attention": (
        *("_decode", "_merge", "flash", "::attend"),
        *("dot_product_attention", "index_select", "::index"),
    ),
    "sampling": ("_block_weights", "_pick_token", "argmax", "cumsum", "::sample"),
}
_OTHER = "other kernels"


class Span(NamedTuple):
    """One kernel on the device, or on a CPU one outermost operator; times in microseconds."""

    name: str
    start: float
    end: float


def group_of(name: str) -> str:
    """The group that a kernel's time counts for.

    >>> group_of("_split_k"), group_of("aten::silu")
    ('matrix products', 'other kernels')
    """
    for group, parts in _GROUPS.items():
        if any(part in name for part in parts):
            return group
    return _OTHER


def breakdown(spans: Sequence[Span], steps: int, wall: float) -> dict[str, float]:
    """Microseconds a step of every group and of the gaps, the whole step, and kernels a step.

    wall: microseconds of all steps. Two kernels at 0-4 and 6-9 in one step of 12: busy 7, gaps 5.
    Where kernels overlap (programmatic launch) the time counts for the one that began first.
    """
    found = dict.fromkeys([*_GROUPS, _OTHER], 0.0)
    reached = float("-inf")
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        found[group_of(span.name)] += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    found |= {"gaps": max(0.0, wall - sum(found.values())), "whole step": wall}
    found["kernels"] = len(spans)
    return {name: value / steps for name, value in found.items()}


def profile_decode(side: NanoengineSide, plan: Plan, batch: int, context: int) -> dict[str, Any]:
    """A breakdown of decode steps of `batch` sequences of about `context` tokens each.

    Also "unprofiled step", the same steps' microseconds without the profiler, and "launch": what
    the host took to launch one (the middle one of a few), which overlap hides behind the device.
    """
    prompt = context - _STEPS  # the two parts lie around the wanted context
    if prompt < 1:
        raise BenchError(
            f"--profile {batch}@{context}: the context must be more than {_STEPS} tokens"
        )
    engine = side.llm.engine
    params = SamplingParams(
        temperature=plan.temperature, max_tokens=2 * _STEPS + _LAUNCHES + 8, ignore_eos=True
    )
    requests = plan.probe(batch, prompt, 1, _SEED + context)
    outputs = [engine.output(engine.add_request(ids, params)) for ids, _ in requests]
    try:
        while not all(output.token_ids for output in outputs):
            engine.step()
        engine.step()  # the pipeline is full: what follows is decode steps alone
        launches: list[float] = []
        engine.on_step = lambda record: launches.append(record.launch_end - record.launch_start)
        for _ in range(_LAUNCHES):
            engine.step()
        engine.on_step = None
        plain = _timed_steps(side)
        activities, kernels = _activities(engine.runner.device), engine.runner.kernels
        with _named_calls(kernels), profile(activities=activities, acc_events=True) as found:
            wall = _timed_steps(side)
    finally:
        engine.on_step = None
        engine.reset()
    result = breakdown(list(_spans(found)), _STEPS, wall)
    return result | {"unprofiled step": plain / _STEPS, "launch": statistics.median(launches) * 1e6}


def table(profiles: dict[str, dict[str, float]]) -> Iterator[str]:
    """The breakdowns for a person, one column a batch@context, within 80 columns for four."""
    yield f"{'decode step, microseconds':<26}" + "".join(f"{name:>13}" for name in profiles)
    rows = [*_GROUPS, _OTHER, "gaps", "whole step", "unprofiled step", "launch", "kernels"]
    for row in rows:
        yield f"  {row:<24}" + "".join(f"{values[row]:>13.1f}" for values in profiles.values())


def _timed_steps(side: NanoengineSide) -> float:
    """Microseconds of _STEPS steps of the engine."""
    device = side.llm.engine.runner.device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(_STEPS):
        side.llm.engine.step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) * 1e6


class _NamedCalls:
    """A library of C functions whose calls the profiler sees: to torch they are no operators.

    The function that does all layers refuses, and each does its part alone.
    """

    def __init__(self, library: Any) -> None:
        self._library = library

    def decode_layers(self, *args: Any) -> int:
        """1, as where the C function fails."""
        return 1

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)

        def named(*args: Any) -> Any:
            with record_function(f"native::{name}"):
                return function(*args)

        return named


@contextmanager
def _named_calls(kernels: Any) -> Iterator[None]:
    """Inside the `with` block the C kernels of a CPU, if there are any, are `_NamedCalls`."""
    library = getattr(kernels, "library", None)
    if library is None:
        yield
        return
    kernels.library = _NamedCalls(library)
    try:
        yield
    finally:
        kernels.library = library


def _activities(device: torch.device) -> list[ProfilerActivity]:
    return [ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU]


def _spans(found: profile) -> Iterator[Span]:
    """What ran on the device; where there is none, the operators that no other one called."""
    events: list[Any] = list(found.events() or [])  # type: ignore[no-untyped-call]
    on_device = [event for event in events if event.device_type.name != "CPU"]
    for event in on_device or [event for event in events if event.cpu_parent is None]:
        yield Span(event.name, event.time_range.start, event.time_range.end)
