"""What a worker is told of a step: whole numbers, and of nearly every decode step a single one.

The full form tells every sequence: which row it has, which tokens are computed, the ids of blocks
that the worker does not know yet, and the token ids to feed. A decoding sequence takes 6 numbers
(24 bytes), and one more when it gets a block: 256 sequences 6 KiB. But most decode batches are
the one before, one token further, and what is fed lies on the device already. Their short form
says "go on", and names only the sequences that got a block.
"""

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import NamedTuple, cast

from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence
from nanoengine.errors import EngineError

DECODE, PREFILL, GO_ON = 0, 1, 2  # a message's first number


class ToldBatch(NamedTuple):
    """The decode batch that was told last: the next one goes on from it, or is told in full.

    A column of its items each, and so what a worker takes for granted. tokens: the placeholders of
    the sequences' next tokens, which also say their rows; tables: the sequences' own lists, which
    grow; known: how many blocks of each were told.
    """

    ends: tuple[int, ...]
    tokens: list[int]
    tables: list[list[int]]
    known: list[int]


class BatchWriter:
    """Rank 0's end: batches as integers; remembers what the workers know."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[int], int]] = {}  # row -> its table, blocks told of it
        self._told: ToldBatch | None = None  # None: what was told last is no decode batch

    def encode(self, batch: Batch) -> list[int]:
        """The batch in the short form where that says it all, else `in_full`.

        Short: [GO_ON, then for each sequence that got a block: its place in the batch, the id].
        """
        return self._go_on(batch) or self.in_full(batch)

    def in_full(self, batch: Batch) -> list[int]:
        """[is_prefill, then for each sequence: row, start, end, known, new, block ids, token ids].

        The first `known` blocks of a row stand as they were told before, `new` more follow them;
        token ids are those of positions [start, end), a placeholder where the token is still on
        the device.
        """
        values = [PREFILL if batch.is_prefill else DECODE]
        for seq, start, end, _ in batch.items:
            row, table = seq.row, seq.block_table
            told, known = self._known.get(row, (None, 0))
            if told is not table:  # another sequence has the row now
                known = 0
            values += (row, start, end, known, len(table) - known)
            if known < len(table):
                values += table[known:]
            values += seq.token_ids[start:end]
            self._known[row] = table, len(table)
        self._told = None
        if not batch.is_prefill and batch.items:
            seqs, starts, ends, _ = zip(*batch.items, strict=True)
            if sum(ends) - sum(starts) == len(seqs):  # one token each, as in every decode
                tables = [seq.block_table for seq in seqs]
                tokens = [-(seq.row + 1) for seq in seqs]
                self._told = ToldBatch(ends, tokens, tables, list(map(len, tables)))
        return values

    def _go_on(self, batch: Batch) -> list[int] | None:
        """The short form; None where it does not say it all.

        Compares whole columns: that takes a tenth of the time of telling every sequence.
        """
        told = self._told
        if told is None or batch.is_prefill or not batch.items:
            return None
        seqs, starts, ends, _ = zip(*batch.items, strict=True)
        if starts != told.ends or sum(ends) - sum(starts) != len(ends):  # not one token further
            return None
        if [seq.token_ids[at] for seq, at in zip(seqs, starts, strict=True)] != told.tokens:
            return None
        tables = [seq.block_table for seq in seqs]
        if tables != told.tables:
            return None
        lengths, values = list(map(len, tables)), [GO_ON]
        if lengths != told.known:
            grown = [place for place, known in enumerate(told.known) if lengths[place] != known]
            if any(lengths[place] != told.known[place] + 1 for place in grown):
                return None
            for place in grown:
                values += (place, tables[place][-1])
                self._known[seqs[place].row] = tables[place], lengths[place]
        self._told = ToldBatch(ends, told.tokens, tables, lengths)
        return values


class RemoteSequence:
    """What a worker knows of a sequence: enough for `inputs.SequenceView`."""

    __slots__ = ("block_table", "num_cached_tokens", "num_scheduled_tokens", "row", "tokens")

    def __init__(self, row: int, start: int, tokens: list[int], block_table: list[int]) -> None:
        self.row, self.tokens, self.block_table = row, tokens, block_table
        self.num_cached_tokens, self.num_scheduled_tokens = start, len(tokens)

    def __len__(self) -> int:
        """Tokens up to the end of this step."""
        return self.num_cached_tokens + self.num_scheduled_tokens

    def __getitem__(self, index: slice) -> list[int]:
        """Token ids by position, of this step's alone."""
        return self.tokens[index.start - self.num_cached_tokens :][: index.stop - index.start]

    @property
    def last_token(self) -> int:
        """The token that a decode step feeds."""
        return self.tokens[-1]


class ReadBatch(NamedTuple):
    """A worker's ToldBatch: sequences, where they end, the placeholders of their next tokens."""

    seqs: list[RemoteSequence]
    ends: list[int]
    tokens: list[list[int]]


# what ScheduledItem(...) does with a tuple, in half the time
_item: Callable[[tuple[RemoteSequence, int, int, bool]], ScheduledItem] = partial(
    tuple.__new__, ScheduledItem
)


class BatchReader:
    """A worker's end: integers as batches; keeps every row's block table."""

    def __init__(self) -> None:
        self._tables: dict[int, list[int]] = {}
        self._told: ReadBatch | None = None

    def decode(self, values: "array[int]") -> Batch:
        """The batch that `BatchWriter.encode` was given, its sequences as RemoteSequences.

        Those of a batch that goes on are the same objects as before, one token further. Raises
        EngineError for what no BatchWriter wrote.
        """
        if not values:
            raise EngineError("a step's message holds nothing, not even its kind of batch")
        kind = values[0]
        if kind == GO_ON:
            return self._go_on(values.tolist())
        if kind not in (DECODE, PREFILL):
            raise EngineError(
                f"a step's message is of kind {kind}, not 0, 1 or 2: rank 0 and this worker run "
                "different versions"
            )
        items = list(self._items(values.tolist()))
        self._told = None
        if kind == DECODE and all(item.end - item.start == 1 for item in items):
            seqs = [cast(RemoteSequence, item.seq) for item in items]
            tokens = [[-(seq.row + 1)] for seq in seqs]
            self._told = ReadBatch(seqs, [item.end for item in items], tokens)
        return Batch(items, is_prefill=kind == PREFILL)

    def _items(self, values: list[int]) -> Iterator[ScheduledItem]:
        at, stop = 1, len(values)
        while at < stop:
            if stop - at < 5:
                raise _no_sequence(values, at)
            row, start, end, known, new = values[at : at + 5]
            after_table = at + 5 + new
            after = after_table + end - start
            # a wrong count could go on for ever; block and token ids are what rank 0 checked
            if row < 0 or known < 0 or new < 0 or not 0 <= start < end or after > stop:
                raise _no_sequence(values, at)
            table = self._tables.setdefault(row, [])
            if known > len(table):
                raise EngineError(f"row {row} has {len(table)} known blocks, not {known}")
            if new or known < len(table):
                table = self._tables[row] = table[:known] + values[at + 5 : after_table]
            seq = cast(Sequence, RemoteSequence(row, start, values[after_table:after], table))
            yield ScheduledItem(seq, start, end, emits=True)
            at = after

    def _go_on(self, values: list[int]) -> Batch:
        told = self._told
        if told is None:
            raise EngineError(
                "a step's message goes on from a decode batch, but none came before it: "
                "rank 0 and this worker run different versions"
            )
        places, blocks = values[1::2], values[2::2]
        allowed = range(len(told.seqs))
        in_order = places == sorted({place for place in places if place in allowed})
        if len(places) != len(blocks) or not in_order or min(blocks, default=0) < 0:
            raise EngineError(
                f"a step's message gives blocks by {values[1:9]}, which are not places below "
                f"{len(allowed)} with a block each: rank 0 and this worker run "
                "different versions"
            )
        for place, block in zip(places, blocks, strict=True):
            told.seqs[place].block_table.append(block)  # the same list as in self._tables
        for seq, end, token in zip(*told, strict=True):
            seq.num_cached_tokens, seq.tokens = end, token
        ends = [end + 1 for end in told.ends]
        self._told = told._replace(ends=ends)
        items = list(map(_item, zip(told.seqs, told.ends, ends, repeat(True), strict=False)))
        return Batch(items, is_prefill=False)


def _no_sequence(values: list[int], at: int) -> EngineError:
    return EngineError(
        f"a step's message holds no sequence at {at}, but {values[at : at + 5]}: rank 0 and "
        "this worker run different versions"
    )
