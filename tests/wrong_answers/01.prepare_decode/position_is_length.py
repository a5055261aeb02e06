# check: two sequences
# words: positions[0] should be 9|you gave 10
# why: one too far, unnoticed for two months (nano-vllm PR 67)
# passes ordinary: no
from nanoengine.engine import inputs
from nanoengine.engine.inputs import DecodeInputs


def prepare_decode(seqs, block_size):
    input_ids, positions, slots, context_lens = [], [], [], []
    for seq in seqs:
        length = len(seq)
        input_ids.append(seq.last_token)
        positions.append(length)
        slots.append(seq.block_table[-1] * block_size + (length - 1) % block_size)
        context_lens.append(length)
    return DecodeInputs(
        input_ids=input_ids,
        positions=positions,
        slot_mapping=slots,
        context_lens=context_lens,
        block_tables=inputs.pad_block_tables([seq.block_table for seq in seqs]),
    )
