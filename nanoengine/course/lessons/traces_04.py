"""What lesson 04 looks at: operations of a step, its time, and its launches as a timeline."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nanoengine import LLM, SamplingParams
from nanoengine.context import get_context
from nanoengine.course.plain import without_cpu_kernels
from nanoengine.engine.cuda_graph import Graph, GraphBuffers, GraphDouble
from nanoengine.engine.model_runner import ModelRunner
from nanoengine.viz.graphs import Timeline

if TYPE_CHECKING:
    from torch._ops import OpOverload

# operations that compute nothing: memory, views, and numbers read by the host
_NO_KERNEL = ("empty", "_local_scalar", "item", "is_nonzero", "_unsafe_view")
_US = 1000.0  # microseconds a millisecond
_FIRST_ID, _PROMPT = 5, 8  # prompts of the timed runs: a few tokens that every model has


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within its `with` block: the names of operations that compute (views and reads do not)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: "OpOverload", types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation; note it unless it only looks at memory in another way."""
        name = func.overloadpacket.__name__
        if not func.is_view and not name.startswith(_NO_KERNEL):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


class DecodeRun(NamedTuple):
    """One decode run: sequences in the batch, and the operations that the model's body took."""

    batch: int
    operations: list[str]


@contextmanager
def watched_decode(runner: ModelRunner) -> Iterator[list[DecodeRun]]:
    """Inside the block every decode run of the model's body adds its operations to the list."""
    runs: list[DecodeRun] = []
    body = runner.run_model

    def watched(input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if get_context().is_prefill:
            return body(input_ids, positions)
        with _Operations() as seen:
            hidden = body(input_ids, positions)
        runs.append(DecodeRun(len(input_ids), seen.names))
        return hidden

    runner.run_model = watched  # type: ignore[method-assign]
    try:
        with without_cpu_kernels(runner):  # C functions are no operations that torch tells of
            yield runs
    finally:
        del runner.run_model


def mean_timelines(
    launches: int, eager_ms: float, graph_ms: float, note: str = ""
) -> tuple[Timeline, Timeline]:
    """The same kernels launched one by one and replayed, drawn from three measured numbers.

    Every launch and every kernel is as long as the mean one. A kernel begins when it has been
    launched and the one before is done. The replay's single launch is drawn as long as one launch.
    """
    launch, kernel = eager_ms * _US / launches, graph_ms * _US / launches
    starts: list[tuple[float, float]] = []
    end = 0.0
    for index in range(launches):
        begin = max((index + 1) * launch, end)
        starts.append((begin, kernel))
        end = begin + kernel
    hosts = [(index * launch, launch) for index in range(launches)]
    replayed = [(launch + index * kernel, kernel) for index in range(launches)]
    return (
        Timeline("launched one by one", hosts, starts, eager_ms, note),
        Timeline("one replay", [(0.0, launch)], replayed, graph_ms, note),
    )


def ms_a_step(llm: LLM, batch: int, steps: int = 32) -> float:
    """Milliseconds a decode step of `batch` sequences: the difference of two timed runs."""
    _timed(llm, batch, 2)  # whatever happens only once
    return (_timed(llm, batch, steps + 1) - _timed(llm, batch, 1)) * _US / steps


def _timed(llm: LLM, batch: int, tokens: int) -> float:
    prompts = [[_FIRST_ID + (i + j) % 50 for j in range(_PROMPT)] for i in range(batch)]
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    start = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    return time.perf_counter() - start


def kernels_a_step(llm: LLM, batch: int, steps: int = 8) -> int | None:
    """Kernels and copies that a decode step runs on the GPU; None where the profiler sees none."""
    counts = [_kernels(partial(_timed, llm, batch, n)) for n in (1, steps + 1)]
    return round((counts[1] - counts[0]) / steps) or None


def _kernels(work: Callable[[], Any]) -> int:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True) as seen:
        work()
    return sum(str(event.device_type).endswith("CUDA") for event in seen.events())


class MeasuringGraph(GraphDouble):
    """The double, measuring what its body holds in intermediate tensors at most: `peak`, bytes."""

    def __init__(self, buffers: GraphBuffers, bucket: int) -> None:
        super().__init__(buffers, bucket)
        self.peak = 0

    def capture(self, body: Callable[[], None], pool: object) -> None:
        """As the double's; the body runs once more, to be measured."""
        from nanoengine.course.tracing import allocated_during

        self.peak = max(allocated_during(body))
        super().capture(body, pool)


def intermediate_bytes(
    capture_all: Callable[..., dict[int, Graph]], runner: ModelRunner, buckets: Sequence[int]
) -> dict[int, int]:
    """bucket -> bytes of intermediate tensors, while `capture_all` captures the runner's model."""
    buffers = GraphBuffers.allocate(
        buckets[-1],
        -(-runner.max_model_len // runner.block_size),
        runner.model_config.hidden_size,
        runner.dtype,
        runner.device,
    )
    with torch.inference_mode():
        graphs: dict[int, Any] = capture_all(
            runner.model, buffers, buckets, lambda bucket: MeasuringGraph(buffers, bucket)
        )
    return {bucket: graph.peak for bucket, graph in sorted(graphs.items())}
