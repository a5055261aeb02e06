def slot_mapping(block_table, start, end, block_size):
    """Block by block, as nano-vllm does it."""
    slots = []
    while start < end:
        block, offset = divmod(start, block_size)
        stop = min(end, (block + 1) * block_size)
        first = block_table[block] * block_size + offset
        slots.extend(range(first, first + stop - start))
        start = stop
    return slots
