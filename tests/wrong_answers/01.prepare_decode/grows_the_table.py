# check: two sequences
# words: changed its argument 1|block_table
# why: the scheduler has allocated the block already
# passes ordinary: no
from nanoengine.engine import inputs
from nanoengine.engine.inputs import DecodeInputs


def prepare_decode(seqs, block_size):
    input_ids, positions, slots, context_lens = [], [], [], []
    for seq in seqs:
        length = len(seq)
        if length % block_size == 1 or length == 10:
            seq.block_table.append(0)
        input_ids.append(seq.last_token)
        positions.append(length - 1)
        slots.append(seq.block_table[-1] * block_size + (length - 1) % block_size)
        context_lens.append(length)
    return DecodeInputs(
        input_ids=input_ids,
        positions=positions,
        slot_mapping=slots,
        context_lens=context_lens,
        block_tables=inputs.pad_block_tables([seq.block_table for seq in seqs]),
    )
