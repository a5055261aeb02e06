"""Who calls whom in a step: the methods of a living engine, watched for a while."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from nanoengine.course.plain import without_cpu_kernels
from nanoengine.viz.runner import Call

if TYPE_CHECKING:
    from nanoengine.engine.engine import LLMEngine

Note = Callable[[tuple[Any, ...], Any], str]


@contextmanager
def traced(engine: "LLMEngine") -> Iterator[list[Call]]:
    """Inside the `with` block the list fills with the calls of the engine's parts, in order.

    Methods that were swapped in are watched like the library's. Times count from the first call.
    """
    calls: list[Call] = []
    depth = 0
    begin: list[float] = []

    def watch(owner: str, function: Callable[..., Any], name: str, note: Note) -> Any:
        def watched(*args: Any, **options: Any) -> Any:
            nonlocal depth
            begin.append(time.perf_counter())
            place, start = len(calls), begin[-1] - begin[0]
            calls.append(Call(owner, name, depth, start, start))
            depth += 1
            try:
                result = function(*args, **options)
                end = time.perf_counter() - begin[0]
                calls[place] = calls[place]._replace(end=end, note=note(args, result))
                return result
            finally:
                depth -= 1

        return watched

    with ExitStack() as stack:
        stack.enter_context(without_cpu_kernels(engine.runner))  # the Sampler is the torch function
        for owner, thing, name, note in _watched_places(engine):
            before = vars(thing).get(name)
            setattr(thing, name, watch(owner, getattr(thing, name), name, note))
            stack.callback(_put_back, thing, name, before)
        yield calls
    calls[:] = _without_idle(calls)


def _put_back(thing: Any, name: str, before: Any) -> None:
    if before is None:
        delattr(thing, name)  # the class's own method shows again
    else:
        setattr(thing, name, before)


def _without_idle(calls: list[Call]) -> list[Call]:
    """Without `_apply` where nothing was in flight: it had nothing to do."""
    busy = []
    for place, call in enumerate(calls):
        last = place + 1 == len(calls)
        if call.name == "_apply" and (last or calls[place + 1].depth <= call.depth):
            continue
        busy.append(call)
    return busy


def _watched_places(engine: "LLMEngine") -> list[tuple[str, Any, str, Note]]:
    """(what it is called, where it hangs, its name, what to note of a call)."""
    from nanoengine.layers import sampler

    runner = engine.runner
    return [
        ("LLMEngine", engine, "step", _no_note),
        ("Scheduler", engine.scheduler, "schedule", _note_schedule),
        ("BlockManager", engine.block_manager, "allocate", _note_blocks),
        ("BlockManager", engine.block_manager, "append_block", _note_blocks),
        ("ModelRunner", runner, "run", _note_run),
        ("ModelRunner", runner, "prepare", _note_prepare),
        ("ModelRunner", runner, "run_model", _no_note),
        ("model", runner.model, "forward", _note_shape),
        ("model", runner.model, "compute_logits", _note_shape),
        ("ModelRunner", runner, "sample_on_rank_0", _no_note),
        ("Sampler", sampler, "sample", _note_tokens),
        ("LLMEngine", engine, "_apply", _note_apply),
        ("Scheduler", engine.scheduler, "applied", _no_note),
        ("BlockManager", engine.block_manager, "hash_blocks", _no_note),
        ("Scheduler", engine.scheduler, "finish", _no_note),
        ("BlockManager", engine.block_manager, "free", _no_note),
    ]


def _no_note(args: tuple[Any, ...], result: Any) -> str:
    return ""


def _note_schedule(args: tuple[Any, ...], result: Any) -> str:
    if result is None:
        return "nothing to run"
    counts = {
        name: len(batch.items)
        for name, batch in (("prefill", result.prefill), ("decode", result.decode))
        if batch
    }
    return " + ".join(f"{name} of {count}" for name, count in counts.items())


def _note_blocks(args: tuple[Any, ...], result: Any) -> str:
    return f"block table {args[0].block_table}"


def _note_run(args: tuple[Any, ...], result: Any) -> str:
    kind = "prefill" if args[0].is_prefill else "decode"
    return f"{kind}, {len(args[0].items)} rows"


def _note_prepare(args: tuple[Any, ...], result: Any) -> str:
    return f"slots {result[2].slot_mapping.tolist()[:6]}"


def _note_shape(args: tuple[Any, ...], result: Any) -> str:
    return f"{list(args[0].shape)} -> {list(result.shape)}"


def _note_tokens(args: tuple[Any, ...], result: Any) -> str:
    return f"tokens {result.tolist()[:6]}"


def _note_apply(args: tuple[Any, ...], result: Any) -> str:
    return "the article's postprocess"
