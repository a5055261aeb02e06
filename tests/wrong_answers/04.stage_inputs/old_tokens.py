# check: one row
# words: row 0 of context_lens should be 5, it is 4
# why: the new token is left out
# passes ordinary: no
def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.input_ids[:b] = input_ids
    buffers.positions[:b] = positions
    buffers.slot_mapping[:b] = context.slot_mapping
    buffers.context_lens[:b] = positions
    tables = context.block_tables
    buffers.block_tables[:b, : tables.shape[1]] = tables
    buffers.slot_mapping[b:bucket] = -1
    buffers.context_lens[b:bucket] = 0
