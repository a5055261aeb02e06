"""What operators need beside their inputs: the step's implicit parameters.

A model's forward takes only `input_ids` and `positions`. Attention also has to know where this
step's keys and values go and which old ones it may read; carrying that through every signature
would touch every layer. So the runner opens a scope, and operators look the parameters up.
The premise: one step at a time in one process (a serial loop, one process a rank).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch

from nanoengine.errors import EngineError


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """Implicit parameters of one model run over n tokens of b sequences; integers are int32.

    is_prefill: variable-length sequences packed end to end; otherwise one token a sequence.
    slot_mapping: [n] slot of each token's K and V, block * block_size + offset; -1 writes nothing.
    cu_seqlens_q, cu_seqlens_k: [b + 1] running sums of the sequences' query and key lengths.
    max_seqlen_q, max_seqlen_k: the longest of each.
    context_lens: [b] decode only: tokens of the sequence, the new one included.
    block_tables: [b, blocks] block ids in order, padded with -1; None: no history to read.
    """

    is_prefill: bool
    slot_mapping: torch.Tensor
    cu_seqlens_q: torch.Tensor | None = None
    cu_seqlens_k: torch.Tensor | None = None
    max_seqlen_q: int = 0
    max_seqlen_k: int = 0
    context_lens: torch.Tensor | None = None
    block_tables: torch.Tensor | None = None

    def prefill_lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(cu_seqlens_q, cu_seqlens_k). Raises EngineError in a decode context."""
        if self.cu_seqlens_q is None or self.cu_seqlens_k is None:
            raise EngineError("a prefill context lacks cu_seqlens_q or cu_seqlens_k: set both")
        return self.cu_seqlens_q, self.cu_seqlens_k

    def decode_tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(context_lens, block_tables). Raises EngineError in a prefill context."""
        if self.context_lens is None or self.block_tables is None:
            raise EngineError("a decode context lacks context_lens or block_tables: set both")
        return self.context_lens, self.block_tables


# One shared object rather than a module global: a copy of the functions below (a student's
# solution, say) works on the same state.
_state = SimpleNamespace(current=None)


@contextmanager
def use_context(context: Context) -> Iterator[Context]:
    """Make `context` the current one inside a `with` block; always reset it at the end.

    Raises EngineError when a context is already in use: two steps at once in one process would
    read each other's slots.
    """
    if _state.current is not None:
        raise EngineError(
            "a Context is already in use: finish that step first (contexts do not nest)"
        )
    _state.current = context
    try:
        yield context
    finally:
        _state.current = None


def get_context() -> Context:
    """The current context. Raises EngineError outside `use_context`."""
    if _state.current is None:
        raise EngineError("no Context is in use: run the model inside `with use_context(...)`")
    current: Context = _state.current
    return current


@contextmanager
def captured_context(context: Context) -> Iterator[None]:
    """For graph capture and its CPU double only: operators see `context`, whatever is current.

    They see a copy on the same memory: what an operator works out for one Context it keeps for
    that run, and this one may serve many replays.
    """
    copy = replace(context, slot_mapping=context.slot_mapping.view(-1))
    outer, _state.current = _state.current, copy
    try:
        yield
    finally:
        _state.current = outer
