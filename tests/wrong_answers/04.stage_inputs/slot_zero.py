# check: padding in fresh buffers
# words: its slot should be -1, it is 0|block 0
# why: slot 0 is somebody's
# passes ordinary: no
def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.input_ids[:b] = input_ids
    buffers.positions[:b] = positions
    buffers.slot_mapping[:b] = context.slot_mapping
    buffers.context_lens[:b] = context.context_lens
    tables = context.block_tables
    buffers.block_tables[:b, : tables.shape[1]] = tables
    buffers.slot_mapping[b:bucket] = 0
    buffers.context_lens[b:bucket] = 0
