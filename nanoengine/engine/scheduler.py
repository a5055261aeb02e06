"""What runs in the next step: continuous batching, chunked prefill, preemption by recompute."""

from collections import deque
from typing import NamedTuple

from nanoengine.engine.block_manager import BlockManager
from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence, Status


class Step(NamedTuple):
    """One step: up to two runs of the model, prefill first."""

    prefill: Batch | None
    decode: Batch | None

    @property
    def items(self) -> list[ScheduledItem]:
        """Everything that is scheduled, in running order."""
        return [item for batch in self if batch for item in batch.items]


class Scheduler:
    """First come, first served, within a token budget and a pool of KV blocks.

    running holds every admitted sequence, oldest first: while it decodes, while its prompt is
    still being computed in chunks, and after its length stop until its last tokens are applied.
    Each of them advances in every step, so at most min(max_num_seqs, token budget) run at once.
    """

    def __init__(
        self,
        block_manager: BlockManager,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_prefill_tokens: int | None = None,
    ) -> None:
        self.block_manager = block_manager
        self.max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_prefill_tokens = max_prefill_tokens or max_num_batched_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.free_rows = list(reversed(range(self.max_num_seqs)))
        self.num_preemptions = 0

    def add(self, seq: Sequence) -> None:
        """Queue a new sequence."""
        self.waiting.append(seq)

    @property
    def has_work(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self.waiting or self.running)

    def decoding(self) -> list[Sequence]:
        """Running sequences that take one more token in the next step."""
        return [s for s in self._live() if not s.is_prefilling and not s.is_length_stopped]

    def _live(self) -> list[Sequence]:
        # a finished sequence stays in `running` while a launched step still writes its blocks
        return [seq for seq in self.running if seq.status is Status.RUNNING]

    def must_preempt(self) -> bool:
        """Whether the decoding sequences need more new blocks than are free.

        The engine applies the step in flight first: it may free blocks, and a sequence whose
        newest token is unknown cannot be recomputed.
        """
        free = len(self.block_manager.free_block_ids)
        if len(self.running) <= free:  # each needs at most one: no need to count
            return False
        return sum(self.block_manager.needs_block(seq) for seq in self.decoding()) > free

    def schedule(self) -> Step | None:
        """The next step, or None when nothing can run now.

        Preempts while blocks are short, so nothing may be in flight when `must_preempt()`.
        """
        while self.must_preempt():
            self._preempt(self.running[-1])
        decode = []
        for seq in self.decoding():
            if self.block_manager.needs_block(seq):
                self.block_manager.append_block(seq)
            decode.append(self._item(seq, 1))
        prefill = self._schedule_prefill(len(decode))
        if not decode and not prefill:
            return None
        return Step(
            Batch(prefill, is_prefill=True) if prefill else None,
            Batch(decode, is_prefill=False) if decode else None,
        )

    def _schedule_prefill(self, num_decode: int) -> list[ScheduledItem]:
        """Chunks for prompts already begun, then for newly admitted ones, in order of arrival."""
        budget = self.max_num_batched_tokens - num_decode
        if num_decode:
            budget = min(budget, self.max_prefill_tokens)
        items: list[ScheduledItem] = []

        def take(seq: Sequence) -> int:
            chunk = min(budget, seq.num_prefill_tokens - seq.num_cached_tokens)
            items.append(self._item(seq, chunk))
            return chunk

        # Only the prompt that was admitted last can have met the end of the budget and be half
        # done; and something is left for it, for fewer sequences run than the budget has tokens.
        for seq in self.running[-1:]:
            if seq.status is Status.RUNNING and seq.is_prefilling:
                budget -= take(seq)
        while budget > 0 and self.waiting and len(self.running) < self.max_num_seqs:
            seq = self.waiting[0]
            if not self.block_manager.allocate(seq):
                break
            self._admit(seq)
            budget -= take(seq)
        return items

    def _item(self, seq: Sequence, num_tokens: int) -> ScheduledItem:
        start, end = seq.num_cached_tokens, seq.num_cached_tokens + num_tokens
        seq.num_scheduled_tokens = num_tokens
        return ScheduledItem(seq, start, end, end == len(seq.token_ids))

    def _admit(self, seq: Sequence) -> None:
        self.waiting.popleft()
        if seq.num_output_tokens == 0:
            seq.num_reused_tokens = seq.num_cached_tokens
        seq.num_prefill_tokens = len(seq)
        seq.row = self.free_rows.pop()
        seq.status = Status.RUNNING
        self.running.append(seq)

    def _preempt(self, seq: Sequence) -> None:
        """Take a sequence's blocks; it will be recomputed, its own output included."""
        self.num_preemptions += 1
        self._leave(seq)
        seq.status = Status.WAITING
        self.waiting.appendleft(seq)

    def launched(self, step: Step) -> None:
        """Advance the counters as if the step's tokens were known; they stand as placeholders."""
        for seq, _, end, emits in step.items:
            seq.num_cached_tokens = end
            seq.num_scheduled_tokens = 0
            seq.in_flight += 1
            if emits:
                seq.token_ids.append(-(seq.row + 1))
        for seq, _, end, _ in step.prefill.items if step.prefill else ():
            self.block_manager.hash_ahead(seq, end)  # a prompt's tokens are known

    def applied(self, item: ScheduledItem, token: int) -> bool:
        """Write one item's token where its placeholder stands; False: it came too late.

        A late token belongs to a sequence that was found finished one step ago.
        """
        seq, start, end, emits = item
        seq.in_flight -= 1
        if seq.status is Status.FINISHED:
            if seq.in_flight == 0:
                self._leave(seq)
            return False
        if emits:
            seq.token_ids[end] = token
        self.block_manager.hash_blocks(seq, start, end)
        return emits

    def finish(self, seq: Sequence, num_tokens: int | None = None) -> None:
        """End a sequence, keeping its first `num_tokens` tokens.

        Its blocks come back now or, while a launched step still writes into them, with the last
        such step.
        """
        if num_tokens is not None:
            del seq.token_ids[num_tokens:]
        waiting = seq.status is Status.WAITING
        seq.status = Status.FINISHED
        if waiting:
            self.waiting.remove(seq)
        elif seq.in_flight == 0:
            self._leave(seq)

    def _leave(self, seq: Sequence) -> None:
        """Out of `running`; blocks and row back to their pools."""
        self.running.remove(seq)
        self.block_manager.free(seq)
        self.free_rows.append(seq.row)
        seq.row = -1
