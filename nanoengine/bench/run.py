"""`nanoengine bench`: a workload through this engine and, if asked, through a peer."""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from nanoengine import environment
from nanoengine.bench import BenchError, check, measure, profile, report, rpc, shapes, workload
from nanoengine.bench.model import LONGEST, Model, load_transformers
from nanoengine.bench.peers import PEERS, NanoengineSide, require_peer
from nanoengine.commands.options import Parser, add_engine_options, engine_options
from nanoengine.config import EngineConfig
from nanoengine.models.config import ModelConfig, read_model_config
from nanoengine.sources import resolve_model

ARTICLE = "256 requests of 100-1024 tokens in and out"
_LENGTHS = "100-1024"
_ARTICLE_STEPS = "256@193,256@641"
_CUSTOM = "custom"


def main(argv: Sequence[str]) -> int:
    """`nanoengine bench`: prints a table, and as its last line the whole result as JSON."""
    args = _parse(argv)
    if args.rpc:
        return rpc.main()
    result = _benchmark(args)
    for line in report.table(result):
        print(line)
    if args.json:
        _write(args.json, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 0


def benchmark(argv: Sequence[str]) -> dict[str, Any]:
    """What `nanoengine bench ARGV` measures, as its JSON; progress goes to stderr.

    Raises BenchError for a workload that cannot be run or gave another number of tokens.
    """
    return _benchmark(_parse(argv))


def _benchmark(args: argparse.Namespace) -> dict[str, Any]:
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    peer = args.peer and require_peer(args.peer)
    options = engine_options(args)
    with _model(args, options) as (model, config):
        plan = _plan(args, model, config)
        _say(f"{model.name} on {environment.device_name(model.device)}, {model.dtype}")
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        facts = _describe(args, model, plan, options) | {"load_average_before": load}
        # Several engines fit side by side in main memory; a GPU each of them wants for itself.
        together = model.device.type == "cpu"
        side = NanoengineSide(model, options)
        others = [peer.make(model, options)] if peer and together else []
        found = measure.measure([side, *others], plan)
        facts["breakdown"] = measure.breakdown(side, plan)
        if args.profile:
            facts["profile"] = {
                f"{batch}@{context}": profile.profile_decode(side, plan, batch, context)
                for batch, context in args.profile
            }
        facts |= report.floor(side.llm.engine.runner, plan.workload)
        checked = check.spread(plan.workload, args.check)
        outputs = check.greedy_outputs(side, checked) if checked else []
        side.close()
        for other in others:
            other.close()
        if checked:
            _say(f"comparing {len(checked)} requests with a dense forward")
            facts["check"] = check.compare_with_dense(checked, outputs, load_transformers(model))
        if peer and not together:
            other = peer.make(model, options)
            found += measure.measure([other], plan)
            other.close()
    return report.assemble(facts, found)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("nanoengine bench", f"Measure throughput. Default: the article's {ARTICLE}.")
    parser.add_argument(
        "--shape", choices=list(shapes.SHAPES), help="random weights of this shape, not --model"
    )
    parser.add_argument("--peer", choices=list(PEERS), help="run the same work through it, too")
    parser.add_argument("--requests", type=int, default=256, help="default: %(default)s")
    parser.add_argument("--input", type=_range, default=_range(_LENGTHS), metavar="A-B")
    parser.add_argument("--output", type=_range, default=_range(_LENGTHS), metavar="A-B")
    parser.add_argument("--temperature", type=float, default=0.6, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of workload and random weights")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    parser.add_argument(
        "--decode-steps",
        type=_steps,
        metavar="B@C,...",
        help=f"batches and mean contexts to time a decode step at ({_ARTICLE_STEPS} for the "
        "article's workload on a GPU, else none)",
    )
    parser.add_argument(
        "--profile",
        type=_steps,
        metavar="B@C,...",
        help="batches and contexts whose decode step is taken apart: where its time goes",
    )
    parser.add_argument(
        "--check",
        type=int,
        default=16,
        metavar="N",
        help="requests to compare with a dense forward; default: %(default)s",
    )
    parser.add_argument("--threads", type=int, help="CPU threads, of every engine")
    parser.add_argument(
        "--rpc", action="store_true", help="only what telling another rank about a step costs"
    )
    parser.add_argument("--json", metavar="FILE", help="write the result there")
    add_engine_options(parser)
    args = parser.parse(argv)
    for name in ("requests", "repeats", "threads"):
        value = getattr(args, name)
        if value is not None and value < 1:
            parser.error(f"--{name} {value}: use 1 or more")
    if args.shape and hasattr(args, "model"):
        parser.error("give either --model or --shape")
    return args


def _range(text: str) -> tuple[int, int]:
    """ "32-128" -> (32, 128)."""
    low, _, high = text.partition("-")
    found = int(low), int(high or low)
    if not 1 <= found[0] <= found[1]:
        raise ValueError
    return found


def _steps(text: str) -> list[tuple[int, int]]:
    """ "256@193,1@641" -> [(256, 193), (1, 641)]."""
    pairs = [part.split("@") for part in text.split(",") if part]
    return [(int(batch), int(context)) for batch, context in pairs]


_range.__name__, _steps.__name__ = "range A-B", "list of B@C"  # for argparse's error messages


@contextlib.contextmanager
def _model(
    args: argparse.Namespace, options: dict[str, Any]
) -> Iterator[tuple[Model, ModelConfig]]:
    """The model to load; a shape's folder lasts as long as the benchmark."""
    engine = EngineConfig.from_kwargs(**options)
    device = engine.resolve_device()
    with contextlib.ExitStack() as stack:
        if args.shape:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="nanoengine-bench-"))
            folder, name = shapes.write_config(args.shape, Path(temporary)), args.shape
        else:
            folder = resolve_model(options.pop("model", None))
            name = str(engine.model or "classroom")
        config = read_model_config(folder)
        dtype = str(engine.resolve_dtype(config.dtype, device)).removeprefix("torch.")
        longest = engine.max_model_len or min(config.max_position_embeddings, LONGEST)
        seed = args.seed if args.shape else None
        yield Model(name, folder, seed, device, dtype, longest), config


def _plan(args: argparse.Namespace, model: Model, config: ModelConfig) -> measure.Plan:
    """What to measure. Raises BenchError for requests that the model cannot hold."""
    longest = args.input[1] + args.output[1]
    if longest > model.max_model_len:
        raise BenchError(
            f"--input and --output allow {longest} tokens a request, the model "
            f"{model.max_model_len} (max_model_len): use shorter ranges"
        )
    requests = workload.make_workload(
        seed=args.seed,
        num_requests=args.requests,
        min_len=args.input[0],
        max_len=args.input[1],
        vocab_size=config.vocab_size,
        min_output=args.output[0],
        max_output=args.output[1],
    )
    steps = args.decode_steps
    if steps is None:
        on_gpu = _name(args) == "article" and model.device.type == "cuda"
        steps = _steps(_ARTICLE_STEPS) if on_gpu else []
    return measure.Plan(requests, config.vocab_size, args.temperature, args.repeats, steps)


def _name(args: argparse.Namespace) -> str:
    """ "article" for the article's workload, else "custom"."""
    article = (256, _range(_LENGTHS), _range(_LENGTHS), 0)
    given = (args.requests, args.input, args.output, args.seed)
    return "article" if given == article else _CUSTOM


def _describe(
    args: argparse.Namespace, model: Model, plan: measure.Plan, options: dict[str, Any]
) -> dict[str, Any]:
    """What a reader must know to judge and repeat the numbers."""
    return {
        "benchmark": _name(args),
        "measured": time.strftime("%Y-%m-%d"),
        "shape": model.name,
        "weights": "random" if args.shape else "real",
        "device": environment.device_name(model.device),
        "dtype": model.dtype,
        "threads": torch.get_num_threads(),
        "versions": environment.versions(),
        **environment.git_state(),
        "seed": args.seed,
        "workload": {
            "requests": args.requests,
            "input": args.input,
            "output": args.output,
            "prompt_tokens": sum(len(prompt) for prompt, _ in plan.workload),
            "output_tokens": sum(count for _, count in plan.workload),
            "temperature": args.temperature,
        },
        "options": {"max_model_len": model.max_model_len, **options},
    }


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BenchError(f"--json {path} cannot be written ({error})") from error


def _say(message: str) -> None:
    print(f"nanoengine bench: {message}", file=sys.stderr, flush=True)
