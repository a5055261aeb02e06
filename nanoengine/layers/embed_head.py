"""Token embedding and output head, cut along the vocabulary.

Any vocabulary size works: the last rank's rows are padded up to a full shard.
"""

import torch
import torch.nn.functional as F
from torch import nn

from nanoengine.distributed.group import SINGLE, TPGroup
from nanoengine.kernels.binding import KernelLayer
from nanoengine.layers.linear import TensorSource


def embed(input_ids: torch.Tensor, weight: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """This rank's part of the embedding: the rows of ids in [first, last), zeros for all others.

    input_ids: [n] int64. weight: [rows, hidden], the table's rows from `first` on, padding
    behind them. Gives [n, hidden]; the sum over the ranks is the whole embedding, since each id
    lies on exactly one of them. With ids [0, 5, 9] and rows [4, 8) here, only the second is
    looked up, as row 1.
    """
    mine = (input_ids >= first) & (input_ids < last)
    local = torch.where(mine, input_ids - first, 0)  # an id of another rank must not run out of it
    return F.embedding(local, weight) * mine[:, None]


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
        return self.group.all_reduce(embed(input_ids, self.weight, self.first, self.last))

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
        """[n, hidden] -> [n, vocab_size] of the model's dtype; on rank 0, all ranks' columns."""
        linear = F.linear if self.kernels is None else self.kernels.linear
        logits = self.group.gather_last(linear(hidden_states, self.weight))
        return logits[:, : self.vocab_size]
