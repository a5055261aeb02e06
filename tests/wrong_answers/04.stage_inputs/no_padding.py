# check: padding after a larger batch
# words: row 3 is padding: its slot should be -1, it is 372
# why: rows of the step before are computed and written again
# passes ordinary: yes
def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.input_ids[:b] = input_ids
    buffers.positions[:b] = positions
    buffers.slot_mapping[:b] = context.slot_mapping
    buffers.context_lens[:b] = context.context_lens
    tables = context.block_tables
    buffers.block_tables[:b, : tables.shape[1]] = tables
