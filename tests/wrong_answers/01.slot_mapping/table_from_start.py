# check: several blocks
# words: position 4|slot 8|you gave 28
# why: the table is indexed from the chunk, not from the sequence (prefix hits)
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size):
    slots = []
    for i in range(end - start):
        block = block_table[i // block_size]
        slots.append(block * block_size + (start + i) % block_size)
    return slots
