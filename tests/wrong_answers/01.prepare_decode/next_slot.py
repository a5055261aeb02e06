# check: two sequences
# words: slot_mapping[1] should be 36|you gave 16
# why: the slot behind the last one, across a border of blocks
# passes ordinary: no
from nanoengine.engine import inputs
from nanoengine.engine.inputs import DecodeInputs


def prepare_decode(seqs, block_size):
    input_ids, positions, slots, context_lens = [], [], [], []
    for seq in seqs:
        length = len(seq)
        input_ids.append(seq.last_token)
        positions.append(length - 1)
        before = max(length - 2, 0)
        slots.append(seq.block_table[before // block_size] * block_size + before % block_size + 1)
        context_lens.append(length)
    return DecodeInputs(
        input_ids=input_ids,
        positions=positions,
        slot_mapping=slots,
        context_lens=context_lens,
        block_tables=inputs.pad_block_tables([seq.block_table for seq in seqs]),
    )
