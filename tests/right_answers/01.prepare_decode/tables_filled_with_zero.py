# remark: filled up with 0
from nanoengine.engine import inputs
from nanoengine.engine.inputs import DecodeInputs


def prepare_decode(seqs, block_size):
    input_ids, positions, slots, context_lens = [], [], [], []
    for seq in seqs:
        length = len(seq)
        input_ids.append(seq.last_token)
        positions.append(length - 1)
        slots.append(seq.block_table[-1] * block_size + (length - 1) % block_size)
        context_lens.append(length)
    return DecodeInputs(
        input_ids=input_ids,
        positions=positions,
        slot_mapping=slots,
        context_lens=context_lens,
        block_tables=[(list(s.block_table) + [0] * 99)[: max(len(t.block_table) for t in seqs)] for s in seqs],
    )
