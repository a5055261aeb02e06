from itertools import accumulate

from nanoengine.engine import inputs
from nanoengine.engine.inputs import PrefillInputs


def prepare_prefill(seqs, block_size):
    chunks = [(s, s.num_cached_tokens, s.num_cached_tokens + s.num_scheduled_tokens) for s in seqs]
    history = any(start > 0 for _, start, _ in chunks)
    return PrefillInputs(
        [token for s, start, end in chunks for token in s[start:end]],
        [p for _, start, end in chunks for p in range(start, end)],
        [
            slot
            for s, start, end in chunks
            if len(s.block_table) > 0
            for slot in inputs.slot_mapping(s.block_table, start, end, block_size)
        ],
        list(accumulate((end - start for _, start, end in chunks), initial=0)),
        list(accumulate((end for *_, end in chunks), initial=0)),
        max(end - start for _, start, end in chunks),
        max(end for *_, end in chunks),
        inputs.pad_block_tables([s.block_table for s in seqs]) if history else None,
    )
