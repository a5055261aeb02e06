# check: one row
# words: buffers.context_lens is another tensor afterwards
# why: only one of five is assigned
# passes ordinary: no
def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.input_ids[:b] = input_ids
    buffers.positions[:b] = positions
    buffers.slot_mapping[:b] = context.slot_mapping
    buffers.context_lens = context.context_lens
    tables = context.block_tables
    buffers.block_tables[:b, : tables.shape[1]] = tables
    buffers.slot_mapping[b:bucket] = -1
