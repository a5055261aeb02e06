# check: several blocks
# words: position 4|slot 8|you gave 12
# why: a default argument that lives from call to call
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size, slots=[]):
    for p in range(start, end):
        slots.append(block_table[p // block_size] * block_size + p % block_size)
    return slots
