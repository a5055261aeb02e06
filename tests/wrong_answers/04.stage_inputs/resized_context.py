# check: padding in fresh buffers
# words: own slot_mapping was written
# why: pads the batch, not the buffer
# passes ordinary: no
def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.input_ids[:b] = input_ids
    buffers.positions[:b] = positions
    buffers.slot_mapping[:b] = context.slot_mapping
    buffers.context_lens[:b] = context.context_lens
    tables = context.block_tables
    buffers.block_tables[:b, : tables.shape[1]] = tables
    context.slot_mapping.resize_(bucket)
    context.slot_mapping[b:] = -1
