# check: a chunk that ends inside a block
# words: input_ids should have 5 entries|you gave 12
# why: the whole rest of the prompt in one step
# passes ordinary: yes
from nanoengine.engine import inputs
from nanoengine.engine.inputs import PrefillInputs


def prepare_prefill(seqs, block_size):
    input_ids, positions, slots = [], [], []
    cu_seqlens_q, cu_seqlens_k = [0], [0]
    max_seqlen_q = max_seqlen_k = 0
    for seq in seqs:
        start = seq.num_cached_tokens
        end = len(seq)
        input_ids += seq[start:end]
        positions += range(start, end)
        if seq.block_table:
            slots += inputs.slot_mapping(seq.block_table, start, end, block_size)
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
