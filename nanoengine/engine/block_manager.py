"""Paged KV book-keeping: which sequence owns which block, and which blocks can be shared.

A block is `block_size` slots of every layer's cache (PagedAttention, arXiv 2309.06180). A full
block is known by the hash of its tokens chained to the hash of the block before it, so equal
prompt beginnings find each other's blocks. Free blocks keep their content until they are reused.
"""

import hashlib
from array import array
from collections import OrderedDict

from nanoengine.engine.sequence import Sequence
from nanoengine.errors import EngineError


class Block:
    """One KV block: how many tables hold it, and what is in it (once it is full)."""

    __slots__ = ("hash", "ref_count", "token_ids")

    def __init__(self) -> None:
        self.ref_count = 0
        self.hash: bytes | None = None
        self.token_ids: list[int] = []


class BlockManager:
    """The pool of KV blocks. Taking, freeing and reviving one block are O(1)."""

    def __init__(
        self, num_blocks: int, block_size: int, enable_prefix_caching: bool = True
    ) -> None:
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.blocks = [Block() for _ in range(num_blocks)]
        # ordered: the block freed longest ago is reused first
        self.free_block_ids: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self.hash_to_block_id: dict[bytes, int] = {}

    @staticmethod
    def compute_hash(parent: bytes, token_ids: list[int]) -> bytes:
        """Hash of a full block, chained to its predecessor's (b"" for the first block)."""
        data = parent + array("I", token_ids).tobytes()  # unsigned: refuses placeholders
        return hashlib.blake2b(data, digest_size=16).digest()

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens: 9 tokens in blocks of 4 take 3."""
        return -(-num_tokens // self.block_size)

    def block_hash(self, seq: Sequence, index: int) -> bytes:
        """The chained hash of the sequence's block `index`, computed once; all tokens known."""
        while len(seq.block_hashes) <= index:
            tokens = self.block_tokens(seq, len(seq.block_hashes))
            parent = seq.block_hashes[-1] if seq.block_hashes else b""
            seq.block_hashes.append(self.compute_hash(parent, tokens))
        return seq.block_hashes[index]

    def block_tokens(self, seq: Sequence, index: int) -> list[int]:
        """The sequence's tokens in its block `index`."""
        return seq.token_ids[index * self.block_size : (index + 1) * self.block_size]

    def cached_prefix(self, seq: Sequence) -> list[int]:
        """Ids of the blocks that already hold the sequence's beginning.

        The block with the last token is never taken from the cache: at least one token has to
        run, since its logits give the next one.
        """
        hits: list[int] = []
        if not self.enable_prefix_caching:
            return hits
        for index in range((len(seq) - 1) // self.block_size):
            block_id = self.hash_to_block_id.get(self.block_hash(seq, index))
            if block_id is None:
                break
            if self.blocks[block_id].token_ids != self.block_tokens(seq, index):
                break  # another block with this hash
            hits.append(block_id)
        return hits

    def allocate(self, seq: Sequence) -> bool:
        """Give a waiting sequence blocks for all its tokens, shared ones first; False: no room.

        Sets num_cached_tokens to the tokens whose K and V are there already.
        """
        hits = self.cached_prefix(seq)
        needed = self.blocks_for(len(seq)) - len(hits)
        free_hits = sum(self.blocks[b].ref_count == 0 for b in hits)
        if needed + free_hits > len(self.free_block_ids):
            return False
        for block_id in hits:
            block = self.blocks[block_id]
            if block.ref_count == 0:
                del self.free_block_ids[block_id]
            block.ref_count += 1
        seq.block_table = hits + [self._take() for _ in range(needed)]
        seq.num_cached_tokens = len(hits) * self.block_size
        return True

    def needs_block(self, seq: Sequence) -> bool:
        """Whether the next decode step writes into a block that the sequence does not have yet.

        The last token is counted in the length but not cached: its slot must exist now.
        """
        return len(seq.token_ids) > len(seq.block_table) * self.block_size

    def append_block(self, seq: Sequence) -> None:
        """Give a decoding sequence one more block."""
        seq.block_table.append(self._take())

    def hash_ahead(self, seq: Sequence, end: int) -> None:
        """Compute the hashes that `hash_blocks` will need up to token `end`; all tokens known.

        Called once the step is launched: until its tokens come the host has nothing else to do.
        """
        if self.enable_prefix_caching and end >= self.block_size:
            self.block_hash(seq, end // self.block_size - 1)

    def hash_blocks(self, seq: Sequence, start: int, end: int) -> None:
        """Make the blocks that became full in tokens [start, end) findable; all tokens known.

        Called after the step ran, so that nobody can share a block before its K and V exist.
        """
        if not self.enable_prefix_caching:
            return
        for index in range(start // self.block_size, end // self.block_size):
            key = self.block_hash(seq, index)
            if key in self.hash_to_block_id:  # an equal block is known already: keep that one
                continue
            block_id = seq.block_table[index]
            block = self.blocks[block_id]
            block.hash = key
            block.token_ids = self.block_tokens(seq, index)
            self.hash_to_block_id[key] = block_id

    def free(self, seq: Sequence) -> None:
        """Give the sequence's blocks back; its last ones will be reused first."""
        for block_id in reversed(seq.block_table):
            block = self.blocks[block_id]
            block.ref_count -= 1
            if block.ref_count == 0:
                self.free_block_ids[block_id] = None
        seq.block_table = []
        seq.num_cached_tokens = 0

    def _take(self) -> int:
        """A free block, emptied: whoever still knew it by its hash forgets it."""
        if not self.free_block_ids:
            raise EngineError("no free KV block: the scheduler must preempt before it allocates")
        block_id, _ = self.free_block_ids.popitem(last=False)
        block = self.blocks[block_id]
        if block.hash is not None:
            del self.hash_to_block_id[block.hash]
        block.hash, block.token_ids, block.ref_count = None, [], 1
        return block_id
