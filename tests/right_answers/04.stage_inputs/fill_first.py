def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.slot_mapping.fill_(-1)
    buffers.context_lens.zero_()
    buffers.input_ids[:b].copy_(input_ids)
    buffers.positions[:b].copy_(positions)
    buffers.slot_mapping[:b].copy_(context.slot_mapping)
    buffers.context_lens[:b].copy_(context.context_lens)
    buffers.block_tables[:b, : context.block_tables.size(1)] = context.block_tables
