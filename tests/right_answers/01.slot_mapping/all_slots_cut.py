from itertools import chain


def slot_mapping(block_table, start, end, block_size):
    all_slots = chain.from_iterable(range(b * block_size, (b + 1) * block_size) for b in block_table)
    return tuple(all_slots)[start:end]
