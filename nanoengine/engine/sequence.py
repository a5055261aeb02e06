"""One request's state."""

from collections.abc import Sequence as SequenceOf
from enum import Enum
from typing import NamedTuple, overload

from nanoengine.sampling_params import SamplingParams


class Status(Enum):
    """Where a sequence is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """A prompt and what was generated after it.

    token_ids: prompt and output. A token that is sampled but not yet read from the device stands
        as a placeholder -(row + 1): lengths and slots are exact before the token is known.
    num_cached_tokens: tokens whose K and V are in the cache once everything launched has run:
        prefix hits, finished chunks, decoded tokens.
    num_scheduled_tokens: tokens of the step being prepared.
    num_prefill_tokens: where prefill ends: the prompt, or after a preemption all tokens so far.
    block_table: ids of its KV blocks, in order.
    stop_token_ids: tokens that end it: the model's (unless ignored) and the request's own.
    row: its place in the device's table of last tokens while it runs.
    in_flight: launched steps whose tokens have not been applied yet.
    """

    def __init__(
        self,
        request_id: str,
        token_ids: SequenceOf[int],
        params: SamplingParams,
        max_total_tokens: int,
        seed: int = 0,
        stop_token_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.request_id = request_id
        self.token_ids = list(token_ids)
        self.params = params
        self.seed = seed
        self.stop_token_ids = stop_token_ids
        self.num_prompt_tokens = len(self.token_ids)
        self.max_total_tokens = max_total_tokens
        self.status = Status.WAITING
        self.num_cached_tokens = 0
        self.num_scheduled_tokens = 0
        self.num_prefill_tokens = self.num_prompt_tokens
        self.num_reused_tokens = 0  # prefix hits of the first admission, for reports
        self.block_table: list[int] = []
        self.block_hashes: list[bytes] = []
        self.row = -1
        self.in_flight = 0

    def __len__(self) -> int:
        """Tokens so far, placeholders included."""
        return len(self.token_ids)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        """Token ids by position."""
        return self.token_ids[index]

    @property
    def last_token(self) -> int:
        """The token that the next decode step feeds (a placeholder while it is in flight)."""
        return self.token_ids[-1]

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far, placeholders included."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def is_prefilling(self) -> bool:
        """Whether some tokens before the first one to decode are not in the cache yet."""
        return self.num_cached_tokens < self.num_prefill_tokens

    @property
    def is_length_stopped(self) -> bool:
        """Whether the length limit is reached: known before the last token itself is."""
        return len(self.token_ids) >= self.max_total_tokens

    def __repr__(self) -> str:
        return (
            f"Sequence({self.request_id!r}, {self.status.value}, {len(self)} tokens, "
            f"{self.num_cached_tokens} cached, blocks {self.block_table})"
        )


class ScheduledItem(NamedTuple):
    """A sequence's part of one step; what follows the launch uses this, never live counters.

    Tokens [start, end) are computed; `emits` says whether the last one's logits give a new token
    (the last chunk of a prompt, and every decode), or are thrown away.
    """

    seq: Sequence
    start: int
    end: int
    emits: bool


class Batch(NamedTuple):
    """One run of the model: all prefill chunks of a step, or all its decode rows."""

    items: list[ScheduledItem]
    is_prefill: bool

    @property
    def seqs(self) -> list[Sequence]:
        """The batch's sequences, in row order."""
        return [item.seq for item in self.items]


def whole_prompt(seq: Sequence) -> ScheduledItem:
    """An item that runs all tokens of a sequence at once, as a warm-up does."""
    seq.num_scheduled_tokens, seq.row = len(seq), 0
    return ScheduledItem(seq, 0, len(seq), emits=True)
