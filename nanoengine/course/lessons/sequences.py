"""Stand-ins for sequences: exactly what the prepare functions may read, and nothing else."""

from collections.abc import Callable
from typing import Any


class PrefillSequence:
    """A sequence in prefill, from plain data: all of its tokens are there."""

    def __init__(self, tokens: list[int], cached: int, scheduled: int, blocks: list[int]) -> None:
        self.token_ids = list(tokens)
        self.num_cached_tokens = cached
        self.num_scheduled_tokens = scheduled
        self.block_table = list(blocks)

    @property
    def last_token(self) -> int:
        """Newest token id."""
        return self.token_ids[-1]

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, index: Any) -> Any:
        return self.token_ids[index]


class WorkerSequence:
    """A sequence in decode as a worker of another rank knows it: no token ids but the last.

    Sending all tokens to every rank in every step would cost more than the step itself.
    """

    def __init__(self, length: int, last_token: int, blocks: list[int]) -> None:
        self._length = length
        self.last_token = last_token
        self.num_cached_tokens = length - 1
        self.num_scheduled_tokens = 1
        self.block_table = blocks

    def __len__(self) -> int:
        return self._length

    @property
    def token_ids(self) -> list[int]:
        """Refused: a worker does not have them."""
        raise AttributeError("in decode a worker's sequence has no token_ids, only last_token")

    def __getitem__(self, index: Any) -> Any:
        raise TypeError("in decode a worker's sequence has no tokens but last_token")


def as_worker_sees(prepare_decode: Callable[..., Any]) -> Callable[..., Any]:
    """`prepare_decode` called with worker-side copies of the engine's sequences."""

    def adapted(seqs: Any, block_size: int) -> Any:
        views = [WorkerSequence(len(s), s.last_token, list(s.block_table)) for s in seqs]
        return prepare_decode(views, block_size)

    return adapted
