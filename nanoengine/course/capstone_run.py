"""The capstone's work: one engine on several answers at once, in a process of its own.

`python -m nanoengine.course.capstone_run FILE` reads a task from its input and writes what it saw
to FILE, both as JSON. Nothing is judged here.
"""

import contextlib
import json
import socket
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nanoengine.course import ranks
from nanoengine.course.registry import exercises
from nanoengine.course.server import can_fork
from nanoengine.course.source import run_source
from nanoengine.course.swapping import carried, replaced

Parts = Mapping[str, str]  # exercise id -> the answer's text
Function = Callable[..., Any]

# Everything that the lessons build has its turn: a pool carved from bytes, chunks, a shared
# beginning, graphs whose buckets are padded, greedy and sampled requests, the overlapped loop.
_OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "reference",
    "enforce_eager": False,
    "kvcache_block_size": 4,
    "cpu_kvcache_bytes": 1_500_000,
    "max_model_len": 64,
    "max_num_seqs": 5,
    "max_num_batched_tokens": 12,
}
PROMPTS = (
    "Once upon a time, there was a little cat",
    "Once upon a time, there was a little dog who",
    "A bird saw",
    "Tom and Lily went to the park.",
    "The sun",
)
_MAX_TOKENS = (12, 9, 14, 7, 11)
_SAMPLED: dict[int, dict[str, Any]] = {
    2: {"temperature": 0.8, "seed": 6},
    4: {"temperature": 1.0, "seed": 7, "top_k": 20},
}
_TWO_RANKS = {"tensor_parallel_size": 2, "worker_timeout": 20.0}


def chosen(ids: list[str]) -> tuple[list[str], dict[str, str]]:
    """The parts that can be in one engine at once, and those whose place another one has."""
    places: dict[tuple[int, str], str] = {}
    left_out: dict[str, str] = {}
    for name in ids:
        mine = [(id(place.owner), place.name) for place in exercises[name].places()]
        taken = next((places[place] for place in mine if place in places), None)
        if taken is not None:
            left_out[name] = taken
        else:
            places.update(dict.fromkeys(mine, name))
    return [name for name in ids if name not in left_out], left_out


def observe(parts: Parts) -> dict[str, Any]:
    """Generate on one rank and, if a part had no turn there, on two.

    "one", "two": {"tokens", "texts"}, {"error"}, or None where it was not run. "calls": of each
    part. "left_out": parts whose place another one has.
    """
    ids, left_out = chosen(list(parts))
    calls: Counter[str] = Counter()
    seen: dict[str, Any] = {"left_out": left_out, "two": None}
    seen["one"] = generate({name: parts[name] for name in ids}, {}, calls)
    idle = [name for name in ids if not calls[name]]
    if "error" not in seen["one"] and idle and hasattr(socket, "send_fds"):
        seen["two"] = generate({name: parts[name] for name in ids}, _TWO_RANKS, calls)
    seen["calls"] = dict(calls)
    return seen


def generate(parts: Parts, more: Mapping[str, Any], calls: Counter[str]) -> dict[str, Any]:
    """{"tokens", "texts"} of the capstone's prompts, or {"error"} in words; counts calls."""
    from nanoengine import LLM, SamplingParams

    greedy: dict[str, Any] = {"temperature": 0}
    params = [
        SamplingParams(max_tokens=count, **_SAMPLED.get(index, greedy))
        for index, count in enumerate(_MAX_TOKENS)
    ]
    try:
        with _in_place(parts, calls), LLM(**_OPTIONS, **more) as llm:
            outputs = llm.generate(list(PROMPTS), params, use_tqdm=False)
    except BaseException as error:  # SystemExit and KeyboardInterrupt, too
        return {"error": _in_words(error, parts)}
    return {"tokens": [o.token_ids for o in outputs], "texts": [o.text for o in outputs]}


@contextlib.contextmanager
def _in_place(parts: Parts, calls: Counter[str]) -> Iterator[None]:
    """The answers where the engine looks for them, on every rank; calls are counted at the end."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, text in parts.items():
            exercise, elsewhere = exercises[name], folder / name
            function = run_source(text, exercise.filename)[exercise.function]
            where = {"source": text, "name": exercise.function}
            stack.callback(_add, calls, name, elsewhere)
            stack.enter_context(replaced(exercise, _counting(function, name, calls)))
            stack.enter_context(carried(exercise, where, str(elsewhere)))
        yield


def _add(calls: Counter[str], name: str, elsewhere: Path) -> None:
    calls[name] += ranks.count_of(elsewhere)


def _counting(function: Function, name: str, calls: Counter[str]) -> Function:
    def counted(*args: Any, **options: Any) -> Any:
        calls[name] += 1
        return function(*args, **options)

    return counted


def _in_words(error: BaseException, parts: Parts) -> str:
    """Type, message, and the deepest line of an answer that the exception went through."""
    files = {exercises[name].filename for name in parts}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    at = f", {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first[:120]}{at}"


def smallest_fault(parts: Parts, expected: Mapping[str, Any], two: bool) -> list[str]:
    """A smallest set of parts that already gives something else than `expected`.

    One part after the other is handed back to the library; it stays there as long as the
    difference does.
    """
    kept = chosen(list(parts))[0]
    for name in list(kept):
        fewer = {other: parts[other] for other in kept if other != name}
        if generate(fewer, _TWO_RANKS if two else {}, Counter()) != expected:
            kept.remove(name)
    return kept


def main() -> None:
    """Read {"parts", "expected", "two"}; with something expected, look for the fault."""
    import torch

    torch.set_num_threads(1)
    ranks.start_by_fork(can_fork())
    task = json.load(sys.stdin)
    if task.get("expected") is None:
        found: Any = observe(task["parts"])
    else:
        found = smallest_fault(task["parts"], task["expected"], task["two"])
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
