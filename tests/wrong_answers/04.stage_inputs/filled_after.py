# check: one row
# words: row 0 of slot_mapping should be 4, it is -1|filled afterwards
# why: the right fill in the wrong order
# passes ordinary: no
def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.input_ids[:b] = input_ids
    buffers.positions[:b] = positions
    buffers.slot_mapping[:b] = context.slot_mapping
    buffers.context_lens[:b] = context.context_lens
    tables = context.block_tables
    buffers.block_tables[:b, : tables.shape[1]] = tables
    buffers.slot_mapping.fill_(-1)
    buffers.context_lens[b:].zero_()
