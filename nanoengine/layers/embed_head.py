"""Token embedding and output head, cut along the vocabulary.

Any vocabulary size works: the last rank's rows are padded up to a full shard.
"""

import torch
import torch.nn.functional as F
from torch import nn

from nanoengine.distributed.group import SINGLE, TPGroup
from nanoengine.kernels.binding import KernelLayer
from nanoengine.layers.linear import TensorSource


class VocabParallelEmbedding(KernelLayer):
    """Rows [first, last) of the embedding table live on this rank."""

    def __init__(self, vocab_size: int, hidden: int, group: TPGroup = SINGLE) -> None:
        super().__init__()
        self.group = group
        self.vocab_size, self.hidden = vocab_size, hidden
        rows = -(-vocab_size // group.size)
        self.first = min(group.rank * rows, vocab_size)
        self.last = min(self.first + rows, vocab_size)
        self.weight = nn.Parameter(torch.empty(rows, hidden))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """[n] int64 -> [n, hidden], the same on every rank."""
        if self.group.size == 1:
            return F.embedding(input_ids, self.weight)
        mine = (input_ids >= self.first) & (input_ids < self.last)
        local = torch.where(mine, input_ids - self.first, 0)
        return self.group.all_reduce(F.embedding(local, self.weight) * mine[:, None])

    def source_shape(self, name: str, part: int) -> list[int]:
        """Shape of the whole table on disk."""
        return [self.vocab_size, self.hidden]

    def load(self, name: str, source: TensorSource, part: int) -> None:
        """Read this rank's rows; padding rows are zero."""
        count = self.last - self.first
        self.weight.data[:count].copy_(source[self.first : self.last])
        self.weight.data[count:].zero_()


class ParallelLMHead(VocabParallelEmbedding):
    """Hidden states to logits: [n, hidden] -> [n, vocab_size]."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """[n, hidden] -> [n, vocab_size] of the model's dtype; ranks' columns joined."""
        linear = F.linear if self.kernels is None else self.kernels.linear
        logits = self.group.gather_last(linear(hidden_states, self.weight))
        return logits[:, : self.vocab_size]
