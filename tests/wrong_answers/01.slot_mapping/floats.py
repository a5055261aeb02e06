# check: one block
# words: expected slot|a float: //
# why: true division, cut back to the right numbers, which no list index or kernel takes
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size):
    slots = []
    for p in range(start, end):
        offset = p - p / block_size // 1 * block_size
        slots.append(block_table[p // block_size] * block_size + offset)
    return slots
