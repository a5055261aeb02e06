# check: one fresh sequence
# words: slot_mapping should have 6 entries|you gave 8
# why: slots by whole blocks
# passes ordinary: no
from nanoengine.engine import inputs
from nanoengine.engine.inputs import PrefillInputs


def prepare_prefill(seqs, block_size):
    input_ids, positions, slots = [], [], []
    cu_seqlens_q, cu_seqlens_k = [0], [0]
    max_seqlen_q = max_seqlen_k = 0
    for seq in seqs:
        start = seq.num_cached_tokens
        end = start + seq.num_scheduled_tokens
        input_ids += seq[start:end]
        positions += range(start, end)
        if seq.block_table:
            for block in seq.block_table[start // block_size : -(-end // block_size)]:
                slots += range(block * block_size, (block + 1) * block_size)
        cu_seqlens_q.append(cu_seqlens_q[-1] + end - start)
        cu_seqlens_k.append(cu_seqlens_k[-1] + end)
        max_seqlen_q = max(max_seqlen_q, end - start)
        max_seqlen_k = max(max_seqlen_k, end)
    tables = None
    if cu_seqlens_k[-1] > cu_seqlens_q[-1]:
        tables = inputs.pad_block_tables([seq.block_table for seq in seqs])
    return PrefillInputs(
        input_ids=input_ids,
        positions=positions,
        slot_mapping=slots,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        block_tables=tables,
    )
