"""swap: put a student's function where the engine looks the library's up, on every rank."""

import gc
import inspect
import linecache
import multiprocessing
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from nanoengine.course.errors import CourseError
from nanoengine.course.plain import without_cpu_kernels
from nanoengine.course.registry import Exercise, exercises
from nanoengine.course.source import ANSWER_MODULE, FILENAME, run_source

Function = Callable[..., Any]
_HERE = __name__
# Modules of torch functions that an engine on a CPU does not call where it has kernels.
_CPU_KERNELS = (
    "nanoengine.attention.reference",
    "nanoengine.layers.activation",
    "nanoengine.layers.sampler",
)
_REACHED = ExitStack()  # of a worker: what is installed there stays


@contextmanager
def swap(what: str | Mapping[str, Function], function: Function | None = None) -> Iterator[None]:
    """Inside the `with` block the engine runs `function` instead of the library's.

    One exercise, `swap("01.slot_mapping", fn)`, or several at once, `swap({id: fn, ...})`. The
    library's functions come back at the end, also after an exception. An engine of several ranks
    that is built inside has them on all of its ranks.

    Raises CourseError for an unknown id, for something that cannot be called, and where a living
    engine would not be reached: captured graphs, or workers that run already.
    """
    wanted = {what: function} if isinstance(what, str) else dict(what)
    for key, value in wanted.items():
        if not callable(value):
            raise CourseError(f"swap({key!r}, ...) needs a function, not {type(value).__name__}")
        _refuse_captured(exercises[key])
    if wanted:
        _refuse_running_workers(next(iter(wanted)))
    with ExitStack() as stack:
        for key, value in wanted.items():
            stack.enter_context(replaced(exercises[key], value))
            stack.enter_context(carried(exercises[key], origin(value)))
        yield


@contextmanager
def replaced(exercise: Exercise, function: Function | None) -> Iterator[None]:
    """Replace one exercise's targets in this process, and put back what was there."""
    with ExitStack() as stack:
        stack.enter_context(_in_plain_torch(exercise))
        for owner, name, _ in exercise.places():
            stack.callback(setattr, owner, name, vars(owner)[name])
            _put(owner, name, function)
        yield


@contextmanager
def _in_plain_torch(exercise: Exercise) -> Iterator[None]:
    """Where a kernel does the exercise's work on a CPU, engines run the torch function instead.

    Those that are built inside the `with` block, and until its end those that live already.
    """
    from nanoengine.attention.base import plain_torch

    with ExitStack() as stack:
        if _has_cpu_kernel(exercise):
            stack.enter_context(plain_torch(f"{exercise.id} is swapped"))
            for runner in _living_runners():
                stack.enter_context(without_cpu_kernels(runner))
        yield


def _has_cpu_kernel(exercise: Exercise) -> bool:
    return any(getattr(owner, "__name__", "") in _CPU_KERNELS for owner, _, _ in exercise.places())


def _put(owner: Any, name: str, function: Function | None) -> None:
    keep_static = isinstance(vars(owner)[name], staticmethod) and callable(function)
    setattr(owner, name, staticmethod(function) if keep_static else function)  # type: ignore[arg-type]


# -- on the other ranks ------------------------------------------------------------------------


@contextmanager
def carried(exercise: Exercise, where: Mapping[str, str], calls: str = "") -> Iterator[None]:
    """Workers started inside the `with` block have the function, too.

    where: as `origin` gives it. calls: a file that gets a byte for each call on another rank.
    """
    from nanoengine.distributed.worker import worker_setup

    with worker_setup(f"{_HERE}:install", exercise=exercise.id, where=dict(where), calls=calls):
        yield


def origin(function: Any) -> dict[str, str]:
    """How another process gets it: {"source": text, "name": name}, {"import": name}, {"why": no}.

    An answer travels as the whole text it came from; a function of an importable module by its
    name; one from a notebook's cell as its own text alone.
    """
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", "")
    code = getattr(function, "__code__", None)
    if module == ANSWER_MODULE and code is not None:
        return {"source": "".join(linecache.getlines(code.co_filename)), "name": code.co_name}
    if getattr(sys.modules.get(module), name, None) is function and module != "__main__":
        return {"import": f"{module}:{name}"}
    try:
        text = textwrap.dedent(inspect.getsource(function))
        return {"source": text, "name": function.__name__}
    except (OSError, TypeError):
        kind = name or type(function).__name__
        return {"why": f"{kind} has no source text that another process could run"}


def install(exercise: str, where: Mapping[str, str], calls: str) -> None:
    """In a worker: put the function in its place, for good.

    Raises CourseError for a function that could not travel.
    """
    from nanoengine.attention.base import plain_torch
    from nanoengine.distributed.worker import resolve

    entry = exercises[exercise]
    if _has_cpu_kernel(entry):
        _REACHED.enter_context(plain_torch(f"{exercise} is swapped"))
    if "why" in where:
        raise CourseError(
            f"swap({exercise!r}, ...) does not reach the other ranks: {where['why']}; write it "
            "with `def` in a cell or a file"
        )
    if "import" in where:
        function = resolve(where["import"])
    else:
        function = run_source(where["source"], FILENAME)[where["name"]]
    for owner, name, _ in entry.places():
        _put(owner, name, _counting(function, calls) if calls else function)


def _counting(function: Function, path: str) -> Function:
    """The function, writing a byte to the file a call (ranks may write at once)."""

    def counted(*args: Any, **options: Any) -> Any:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, b".")
        finally:
            os.close(descriptor)
        return function(*args, **options)

    return counted


def _refuse_running_workers(exercise: str) -> None:
    launch: Any = sys.modules.get("nanoengine.distributed.launch")
    names = [process.name for process in multiprocessing.active_children()]
    if launch is not None and any(name.startswith(launch.WORKER_NAME) for name in names):
        raise CourseError(
            f"swap({exercise!r}) would not reach the workers of an engine that runs already: "
            "close that LLM, swap, then build it"
        )


def _living_runners() -> list[Any]:
    from nanoengine.engine.model_runner import ModelRunner

    # type(), since isinstance() asks every object for its class, and some warn when asked
    return [thing for thing in gc.get_objects() if issubclass(type(thing), ModelRunner)]


def _refuse_captured(exercise: Exercise) -> None:
    if not exercise.captured:
        return

    def captured() -> bool:
        # one whose construction failed has no buckets yet
        return any(getattr(runner, "buckets", []) for runner in _living_runners())

    if not captured():
        return
    gc.collect()  # an engine that nobody has any more may still be in a cycle
    if captured():
        raise CourseError(
            f"swap({exercise.id!r}) would not reach an engine whose graphs are captured already: "
            "close that LLM, swap, then build it; or build it with enforce_eager=True"
        )
