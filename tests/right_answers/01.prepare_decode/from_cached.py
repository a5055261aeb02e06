from nanoengine.engine import inputs
from nanoengine.engine.inputs import DecodeInputs


def prepare_decode(seqs, block_size):
    at = [seq.num_cached_tokens for seq in seqs]
    slots = [
        inputs.slot_mapping(seq.block_table, p, p + 1, block_size)[0] for seq, p in zip(seqs, at)
    ]
    tables = inputs.pad_block_tables([seq.block_table for seq in seqs])
    return DecodeInputs([s.last_token for s in seqs], at, slots, [p + 1 for p in at], tables)
