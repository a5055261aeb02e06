def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    lengths, tables = context.decode_tensors()
    for buffer, values, padding in (
        (buffers.input_ids, input_ids, 0),
        (buffers.positions, positions, 0),
        (buffers.slot_mapping, context.slot_mapping, -1),
        (buffers.context_lens, lengths, 0),
    ):
        buffer[:bucket] = padding
        buffer[:b] = values
    buffers.block_tables.zero_()
    buffers.block_tables[:b, : tables.shape[1]] = tables
