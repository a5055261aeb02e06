# check: padding in fresh buffers
# words: its context_lens should be 0, it is 1
# why: one token is read from a stale table
# passes ordinary: no
def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.input_ids[:b] = input_ids
    buffers.positions[:b] = positions
    buffers.slot_mapping[:b] = context.slot_mapping
    buffers.context_lens[:b] = context.context_lens
    tables = context.block_tables
    buffers.block_tables[:b, : tables.shape[1]] = tables
    buffers.slot_mapping[b:bucket] = -1
    buffers.context_lens[b:bucket] = 1
