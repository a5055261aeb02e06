def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    for buffer, values in (
        (buffers.input_ids, input_ids),
        (buffers.positions, positions),
        (buffers.slot_mapping, context.slot_mapping),
        (buffers.context_lens, context.context_lens),
    ):
        buffer.narrow(0, 0, b).copy_(values)
    columns = context.block_tables.shape[1]
    buffers.block_tables.narrow(0, 0, b).narrow(1, 0, columns).copy_(context.block_tables)
    buffers.slot_mapping.narrow(0, b, bucket - b).fill_(-1)
    buffers.context_lens.narrow(0, b, bucket - b).fill_(0)
