"""What a captured sampling reads, and the CPU's stand-in for its graph; see `head_graph`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from nanoengine.engine.cuda_graph import Addresses, addresses, refuse_replaced
from nanoengine.engine.sampling import SamplingInputs
from nanoengine.errors import GraphError

Tensors = tuple[torch.Tensor, ...]
NOTHING: tuple[Tensors, Tensors] = ((), ())  # to stage, and where to


@dataclass(slots=True)
class SamplingBuffers:
    """Static tensors that the sampling graphs read; a graph of size b uses rows [:b].

    temperatures, noise: [max_batch] float32; rows: [max_batch] int64, -1 in a padded row.
    """

    temperatures: torch.Tensor
    noise: torch.Tensor
    rows: torch.Tensor

    @classmethod
    def allocate(cls, max_batch: int, device: torch.device) -> "SamplingBuffers":
        """Buffers for up to max_batch sequences; all rows padding."""
        return cls(
            temperatures=torch.zeros(max_batch, device=device),
            noise=torch.zeros(max_batch, device=device),
            rows=torch.full((max_batch,), -1, dtype=torch.int64, device=device),
        )

    @property
    def tensors(self) -> Tensors:
        """In the order in which `kernels.stage.stage_decode` takes them."""
        return self.temperatures, self.noise, self.rows

    def inputs(self, bucket: int) -> SamplingInputs:
        """What sampling needs of this bucket's rows."""
        temperatures, noise, rows = (tensor[:bucket] for tensor in self.tensors)
        return SamplingInputs(temperatures, noise, rows, filters=None, banned=None)


def stage_sampling(source: Tensors, target: Tensors, bucket: int) -> None:
    """Copy a batch of b <= bucket rows; padded ones are greedy, and their token goes nowhere.

    source, target: temperatures, noise, rows, or nothing at all. The reference of what
    `kernels.stage.stage_decode` does on a GPU.
    """
    for values, to, padding in zip(source, target, (0.0, 0.0, -1), strict=False):
        to[: len(values)] = values
        to[len(values) : bucket] = padding


class SamplingDouble:
    """The CPU's stand-in for a sampling graph, in the manner of `cuda_graph.GraphDouble`.

    Buffers that were replaced since the capture are an error, and so is a padded row that is not
    greedy; the logits of padded rows are NaN before, so that one that is read shows, and their
    tokens are -1 after.
    """

    def __init__(
        self, buffers: SamplingBuffers, results: dict[int, torch.Tensor],
        logits: torch.Tensor, bucket: int,
    ) -> None:  # fmt: skip
        self._buffers, self._results, self._logits, self._bucket = buffers, results, logits, bucket
        self._body: Callable[[], None] | None = None
        self._captured: Addresses = {}

    def capture(self, body: Callable[[], None], pool: object) -> None:
        """Remember `body` and the buffers it works on."""
        self._body, self._captured = body, addresses(self._buffers)

    def replay(self) -> None:
        """Run again on the captured buffers. Raises GraphError where a real graph would fail."""
        if self._body is None:
            raise GraphError(f"the graph of bucket {self._bucket} is replayed before its capture")
        refuse_replaced(self._buffers, self._captured)
        padded = self._buffers.rows[: self._bucket] < 0
        wrong = (padded & (self._buffers.temperatures[: self._bucket] != 0)).nonzero().flatten()
        if len(wrong):
            raise GraphError(
                f"row {int(wrong[0])} of bucket {self._bucket} is padding with temperature "
                f"{float(self._buffers.temperatures[wrong[0]])}: stage padded rows as greedy"
            )
        self._logits[padded] = torch.nan
        self._body()
        self._results[self._bucket][padded] = -1

    def pool(self) -> object:
        """The double shares no memory; any value other than None will do."""
        return self
