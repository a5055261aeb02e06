"""How decode and prefill scale with tensor parallelism: one table, one JSON.

    python -m nanoengine.bench.scaling --shape qwen3-8b --ranks 1 2 4 8 --json FILE
    python -m nanoengine.bench.scaling --shape tiny --device cpu --ranks 1 2 4 8 --batch 8 --steps 8

Random weights of a named shape on every rank. Per number of ranks: decode of a full batch and of
one request, prefill, the time that rank 0 spends in collectives a decode step, and what the
messages to the other ranks cost it a step. On a GPU collectives are NCCL's kernels and ours, which
make the RMSNorm behind a sum, too; on a CPU the calls; waiting for slower ranks is in it. Scaling
is against the smallest number of ranks that ran.
"""

import contextlib
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from nanoengine import environment
from nanoengine.bench import BenchError, shapes
from nanoengine.bench.measure import timed_run
from nanoengine.bench.model import LONGEST, Model
from nanoengine.bench.peers import NanoengineSide
from nanoengine.bench.profile import Span
from nanoengine.bench.workload import Workload, same_length_workload, with_fresh_ids
from nanoengine.commands.options import Parser
from nanoengine.config import EngineConfig
from nanoengine.distributed.group import TPGroup
from nanoengine.distributed.workers import Workers
from nanoengine.engine.step_message import BatchWriter
from nanoengine.errors import NanoengineError
from nanoengine.models.config import read_model_config

_MICRO = 1e6
_COLUMNS = (
    ("ranks", "{}"),
    ("decode_tok_s", "{:,.0f}"),
    ("decode_step_ms", "{:.3f}"),
    ("scaling", "{:.2f}"),
    ("batch1_ms", "{:.3f}"),
    ("prefill_tok_s", "{:,.0f}"),
    ("collectives_us", "{:,.0f}"),
    ("rpc_us", "{:,.0f}"),
)


def main(argv: Sequence[str]) -> int:
    """Print the table, and as the last line the result as JSON."""
    args = _parse(argv)
    options = {"device": args.device, "attention_backend": args.attention_backend}
    device = EngineConfig.from_kwargs(**options).resolve_device()
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="nanoengine-scaling-") as name:
        folder = shapes.write_config(args.shape, Path(name))
        config = read_model_config(folder)
        dtype = str(EngineConfig(device=args.device).resolve_dtype(config.dtype, device))
        longest = min(config.max_position_embeddings, LONGEST)
        dtype = dtype.removeprefix("torch.")
        model = Model(args.shape, folder, args.seed, device, dtype, longest)
        for ranks in args.ranks:
            print(f"{args.shape} on {ranks} ranks", file=sys.stderr, flush=True)
            runs.append(_run(model, ranks, options, args))
    _add_scaling(runs)
    result = {
        "benchmark": "tensor parallel scaling",
        "measured": time.strftime("%Y-%m-%d"),
        "shape": args.shape,
        "device": environment.device_name(device),
        "dtype": dtype,
        "batch": args.batch,
        "context": args.context,
        "steps": args.steps,
        "repeats": args.repeats,
        "versions": environment.versions(),
        **environment.git_state(),
        "runs": runs,
    }
    for line in table(runs):
        print(line)
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
    return 0


def table(runs: Sequence[dict[str, Any]]) -> list[str]:
    """The runs as lines of text, a header first; one that failed says why."""
    lines = ["  ".join(f"{name:>14}" for name, _ in _COLUMNS)]
    for run in runs:
        if "error" in run:
            lines.append(f"{run['ranks']:>14}  {run['error']}")
            continue
        cells = [form.format(run[name]) if run[name] is not None else "" for name, form in _COLUMNS]
        lines.append("  ".join(f"{cell:>14}" for cell in cells))
    return lines


def _parse(argv: Sequence[str]) -> Any:
    parser = Parser("python -m nanoengine.bench.scaling", "Measure scaling over ranks.")
    parser.add_argument("--shape", choices=list(shapes.SHAPES), required=True)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--device", default="auto", help="default: %(default)s")
    parser.add_argument("--attention-backend", default="auto", help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--context", type=int, default=512, help="prompt tokens a request")
    parser.add_argument("--steps", type=int, default=128, help="decode steps a measurement")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights")
    parser.add_argument("--json", metavar="FILE", help="write the result there")
    args = parser.parse(argv)
    for name in ("batch", "context", "steps", "repeats"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} {getattr(args, name)}: use 1 or more")
    return args


def _run(model: Model, ranks: int, options: dict[str, Any], args: Any) -> dict[str, Any]:
    """One number of ranks; {"ranks", "error"} where it cannot run here."""
    wanted = {**options, "tensor_parallel_size": ranks, "max_num_seqs": args.batch}
    if args.context + 2 * args.steps > model.max_model_len:
        raise BenchError(
            f"--context {args.context} and --steps {args.steps} need more than the "
            f"{model.max_model_len} tokens (max_model_len) of a request: use smaller ones"
        )
    try:
        side = NanoengineSide(model, wanted)
    except (NanoengineError, torch.OutOfMemoryError) as error:
        return {"ranks": ranks, "error": str(error).splitlines()[0]}
    try:
        return {"ranks": ranks, **_measure(side, args)}
    finally:
        side.close()


def _measure(side: NanoengineSide, args: Any) -> dict[str, Any]:
    vocab = side.llm.engine.model_config.vocab_size
    seeds = iter(range(10**6))

    def probe(batch: int, tokens: int) -> Workload:
        requests = same_length_workload(batch, args.context, tokens)
        return with_fresh_ids(requests, next(seeds), vocab)

    def seconds(batch: int, tokens: int) -> float:
        return timed_run(side, probe(batch, tokens), 0.0)

    def steps_alone(measure: Callable[[int, int], float], batch: int) -> float:
        """A decode step's part: a run with 1 + steps tokens minus one with 1."""
        return float((measure(batch, 1 + args.steps) - measure(batch, 1)) / args.steps)

    for batch in (args.batch, 1):
        seconds(batch, 4)  # compiles, allocates, captures
    step = [steps_alone(seconds, args.batch) for _ in range(args.repeats)]
    alone = [steps_alone(seconds, 1) for _ in range(args.repeats)]
    prefill = [args.batch * args.context / seconds(args.batch, 1) for _ in range(args.repeats)]

    def parts(tokens: int) -> tuple[list[float], list[float]]:
        with _rpc_seconds() as rpc, _collective_seconds(side) as together:
            side.run(probe(args.batch, tokens), 0.0)
        return together, rpc

    # what comes behind the calls of the prefill alone belongs to decode steps
    prefill_alone, whole = parts(1), parts(1 + args.steps)
    together, messages = (
        spent[len(first) :] for first, spent in zip(prefill_alone, whole, strict=True)
    )
    collectives = sum(together) / args.steps
    # making a message and handing it over; of the steps the middle one: a hiccup of the host in
    # one of them says nothing of the messages
    rpc = [sum(pair) for pair in zip(messages[::2], messages[1::2], strict=True)]
    several = side.llm.engine.config.tensor_parallel_size > 1
    middle = statistics.median(step)
    return {
        "decode_tok_s": args.batch / middle,
        "decode_step_ms": 1e3 * middle,
        "decode_step_ms_runs": [1e3 * value for value in step],
        "batch1_ms": 1e3 * statistics.median(alone),
        "prefill_tok_s": statistics.median(prefill),
        "collectives_us": _MICRO * collectives if several else None,
        "rpc_us": _MICRO * statistics.median(rpc) if several else None,
    }


def _add_scaling(runs: list[dict[str, Any]]) -> None:
    ran = [run for run in runs if "error" not in run]
    for run in ran:
        run["scaling"] = run["decode_tok_s"] / ran[0]["decode_tok_s"]


# -- parts of a step ---------------------------------------------------------------------------


@contextlib.contextmanager
def _timed(owner: Any, name: str, spent: list[float]) -> Iterator[None]:
    """Add the seconds of every call of owner.name in this process to `spent`."""
    function = getattr(owner, name)

    def timed(*args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            spent.append(time.perf_counter() - start)

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, function)


@contextlib.contextmanager
def _rpc_seconds() -> Iterator[list[float]]:
    """Seconds of making messages and handing them over, by call."""
    spent: list[float] = []
    with _timed(BatchWriter, "encode", spent), _timed(Workers, "send", spent):
        yield spent


@contextlib.contextmanager
def _collective_seconds(side: NanoengineSide) -> Iterator[list[float]]:
    """Seconds of this rank's collectives, by call, or by kernel (graphs make no calls)."""
    spent: list[float] = []
    if side.llm.engine.runner.device.type == "cpu":
        with _timed(TPGroup, "_together", spent):
            yield spent
        return
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        yield spent
        torch.cuda.synchronize()
    spans = [  # without annotations like "nccl:all_reduce", around what is counted already
        Span(event.name, event.time_range.start, event.time_range.end)
        for event in profiler.events() or ()
        if str(event.device_type).endswith("CUDA") and not event.name.startswith("nccl:")
    ]
    spent += collective_spans(spans)


def collective_spans(spans: Sequence[Span]) -> list[float]:
    """Seconds of each collective kernel, NCCL's and ours, from the end of the kernel before it.

    With programmatic launch a kernel begins, and waits, while the one before it still works.
    """
    found, reached = [], -math.inf
    for name, start, end in sorted(spans, key=lambda span: span.start):
        if name.startswith(("nccl", "_all_reduce")):
            found.append(max(0.0, end - max(start, reached)) / _MICRO)
        reached = max(reached, end)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
