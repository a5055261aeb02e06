"""Lesson 06's contract for `ModelRunner.run`: what every step is given, and what is left behind.

The runner is real but for its parts: they write down what they see, and compute next to nothing.
"""

from collections.abc import Callable
from typing import Any

import torch

from nanoengine.context import Context, _state
from nanoengine.course.lessons.context_02 import NONE, THE_ONE
from nanoengine.course.lessons.run_words_06 import NOT_CALLED, OLD, OTHER, PAST, RIGHT, THIS
from nanoengine.course.registry import Case
from nanoengine.distributed.group import TPGroup
from nanoengine.engine.model_runner import ModelRunner
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sampling import SampledTokens
from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence
from nanoengine.sampling_params import SamplingParams

Args = tuple[Any, ...]
Run = Callable[..., Any]

_SITUATIONS = {
    "five steps": "a prefill run",
    "decode": "a decode run",
    "the record": "a run with a record",
    "no record": "a run without a record, after one that had one",
    "model raises": "the model raises MemoryError",
    "head raises": "compute_logits raises MemoryError",
    "sampler raises": "sampling raises MemoryError",
    "Ctrl-C": "Ctrl-C while the model runs",
    "rank 0 of 2": "on rank 0 of 2",
    "rank 1 of 2": "on rank 1 of 2",
}
_FAILS: dict[str, tuple[str, type[BaseException]]] = {
    "model raises": ("model", MemoryError),
    "head raises": ("head", MemoryError),
    "sampler raises": ("sampler", MemoryError),
    "Ctrl-C": ("model", KeyboardInterrupt),
}
_CHECKS = {"model raises": "an exception", "head raises": "an exception"}
_CHECKS |= {"sampler raises": "an exception", "Ctrl-C": "an exception"}
_CHECKS |= {"rank 0 of 2": "ranks", "rank 1 of 2": "ranks", "no record": "the record"}


def run_cases() -> list[Case]:
    """One call each, simplest first."""
    return [Case(_CHECKS.get(name, name), words, (name,)) for name, words in _SITUATIONS.items()]


class _Group(TPGroup):
    """Ranks that exist only in its number: a broadcast on rank 1 brings rank 0's tokens."""

    broadcasts: list[int]

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        """Counted; see `_Runner.tokens`."""
        self.broadcasts.append(self.rank)
        return x if self.rank == 0 else x.copy_(_Runner.tokens)


class _Model:
    """Steps 2 and 3 of the fake runner."""

    def __init__(self, runner: "_Runner") -> None:
        self._runner = runner

    def __call__(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Hidden states, when the engine's own choice between running and replaying is left out."""
        self._runner.seen["model"] = PAST
        return self._runner.hidden

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Step 3."""
        return self._runner.step("head", hidden_states is self._runner.hidden, self._runner.logits)


class _Tokens(torch.Tensor):
    """Sampled tokens that count how often the host reads them."""

    reads = 0

    def tolist(self) -> Any:
        """As a Tensor's."""
        self.reads += 1
        return super().tolist()

    def cpu(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As a Tensor's."""
        self.reads += 1
        return super().cpu(*args, **kwargs)


class _Runner(ModelRunner):
    """A ModelRunner whose parts note what they were given and which context they found."""

    tokens = torch.tensor([5, 3])

    def __init__(self, fails: tuple[str, type[BaseException]] | None, rank: int, size: int) -> None:
        self.fails = fails
        self.seen: dict[str, Any] = {}
        self.broadcasts: list[int] = []
        self.group = _Group(rank, size)
        object.__setattr__(self.group, "broadcasts", self.broadcasts)  # a TPGroup is frozen
        self.device, self.kernels = torch.device("cpu"), None
        self.block_size, self.buckets = 4, []
        self.last_token = torch.zeros(2, dtype=torch.int64)
        self.input_ids, self.positions = torch.tensor([1, 2]), torch.tensor([0, 1])
        self.sampled = self.tokens.as_subclass(_Tokens)
        self.hidden, self.logits = torch.ones(2, 3), torch.ones(2, 7)
        self.context = Context(is_prefill=True, slot_mapping=torch.tensor([0, 1]))
        self.batch = _batch()
        self.model = _Model(self)  # type: ignore[assignment]
        self.old = StepRecord(0, self.batch)
        self._record: StepRecord | None = None

    def step(self, name: str, right: bool, result: torch.Tensor) -> torch.Tensor:
        """Note one step, and fail if that is its role."""
        self.seen[name] = RIGHT if right else OTHER
        self.seen[f"{name}'s context"] = _found(self.context)
        self.seen["mode"] = _mode()
        if self.fails is not None and self.fails[0] == name:
            raise self.fails[1]
        return result

    def prepare(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, Context]:
        """Step 1."""
        self.seen["prepare"] = RIGHT if batch is self.batch else OTHER
        self.seen["record"] = self._record
        return self.input_ids, self.positions, self.context

    def run_model(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Step 2."""
        right = input_ids is self.input_ids and positions is self.positions
        return self.step("model", right, self.hidden)

    def sample(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Step 4, on rank 0."""
        return self.step("sampler", logits is self.logits and batch is self.batch, self.sampled)


_Runner.__name__ = ModelRunner.__name__  # what error messages call it


def _batch() -> Batch:
    items = []
    for row in range(2):
        seq = Sequence(f"request {row}", [7, 8], SamplingParams(), 9)
        seq.row, seq.block_table = row, [row]
        items.append(ScheduledItem(seq, 0, 2, emits=True))
    return Batch(items, is_prefill=True)


def _mode() -> str:
    if torch.is_inference_mode_enabled():
        return "inference"
    return "gradients" if torch.is_grad_enabled() else "no_grad"


def _found(context: Context) -> str:
    if _state.current is None:
        return NONE
    return THE_ONE if _state.current is context else "another context"


def observe_run(function: Run, args: Args) -> dict[str, Any]:
    """One call on a fake runner; what its parts saw, what came back, what is left."""
    name = args[0]
    ranks = (1, 2) if name == "rank 1 of 2" else (0, 2) if name == "rank 0 of 2" else (0, 1)
    runner = _Runner(_FAILS.get(name), *ranks)
    if name == "decode":
        runner.batch = runner.batch._replace(is_prefill=False)
        runner.context = Context(is_prefill=False, slot_mapping=runner.context.slot_mapping)
    if name == "no record":
        runner._record = runner.old
    mine = StepRecord(1, runner.batch) if name == "the record" else None
    options = (mine,) if mine is not None else ()
    seen: dict[str, Any] = {"prepare": NOT_CALLED, "record": None, "model": NOT_CALLED}
    seen |= {"head": NOT_CALLED, "sampler": NOT_CALLED, "mode": None}
    seen |= {"left out": False, "reads": 0}
    runner.seen = seen
    _state.current = None
    try:
        returned = function(runner, runner.batch, *options)
        seen["reads"] = runner.sampled.reads
        seen["returned"], seen["raised"] = _described(returned), ""
    except BaseException as error:
        seen["left out"] = runner.group.rank > 0 and not runner.broadcasts
        if runner.fails is None and not seen["left out"]:
            raise
        seen["returned"], seen["raised"] = None, type(error).__name__
    finally:
        seen["after"] = _found(runner.context)
        _state.current = None
    kept = seen["record"]
    if kept is not None:
        seen["record"] = THIS if kept is mine else OLD if kept is runner.old else OTHER
    if runner.group.size > 1:
        seen["broadcasts"] = len(runner.broadcasts)
    return seen


def _described(value: Any) -> list[Any]:
    """[kind, tokens] of what run returned."""
    kind = "Tensor" if isinstance(value, torch.Tensor) else type(value).__name__
    tokens = value.tolist() if isinstance(value, SampledTokens | torch.Tensor) else value
    return [kind, tokens if isinstance(tokens, list) else None]
