# check: one row
# words: row 0 of positions should be 4, it is 0
# why: the rotation is that of an earlier step
# passes ordinary: no
def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.input_ids[:b] = input_ids
    buffers.slot_mapping[:b] = context.slot_mapping
    buffers.context_lens[:b] = context.context_lens
    tables = context.block_tables
    buffers.block_tables[:b, : tables.shape[1]] = tables
    buffers.slot_mapping[b:bucket] = -1
    buffers.context_lens[b:bucket] = 0
