"""What happened in one run of the model: for the tour, pictures, benchmarks and tests."""

from dataclasses import dataclass, field

import torch

from nanoengine.context import Context
from nanoengine.engine.inputs import DecodeInputs, PrefillInputs
from nanoengine.engine.sequence import Batch


@dataclass(slots=True)
class StepRecord:
    """One run of a step (a mixed step has two records with the same number).

    inputs: the integer lists; a negative token id stands for a token still on the device.
    context: the tensors that the operators saw. bucket: the graph that was replayed, if any.
    logits: [b, vocab_size]. tokens: one an item of the batch; None for a chunk that does not end
    its prompt, and for a token that came after its sequence had ended.
    Times are time.perf_counter() seconds: the run's launch began and returned, and its tokens
    were read.
    """

    step: int
    batch: Batch
    inputs: PrefillInputs | DecodeInputs | None = None
    context: Context | None = None
    bucket: int | None = None
    logits: torch.Tensor | None = None
    tokens: list[int | None] = field(default_factory=list)
    launch_start: float = 0.0
    launch_end: float = 0.0
    applied: float = 0.0
