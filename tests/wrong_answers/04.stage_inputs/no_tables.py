# check: one row
# words: row 0 of block_tables should be [0, 1], it is [0, 0]
# why: lengths without tables read block 0
# passes ordinary: no
def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.input_ids[:b] = input_ids
    buffers.positions[:b] = positions
    buffers.slot_mapping[:b] = context.slot_mapping
    buffers.context_lens[:b] = context.context_lens
    buffers.slot_mapping[b:bucket] = -1
    buffers.context_lens[b:bucket] = 0
