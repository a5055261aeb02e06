# check: a token still on the device
# words: input_ids[0] should be -3|you gave 0
# why: a placeholder is negative on purpose: the device replaces it
# passes ordinary: yes
from nanoengine.engine import inputs
from nanoengine.engine.inputs import DecodeInputs


def prepare_decode(seqs, block_size):
    input_ids, positions, slots, context_lens = [], [], [], []
    for seq in seqs:
        length = len(seq)
        input_ids.append(max(seq.last_token, 0))
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
