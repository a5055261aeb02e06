# check: one block
# words: position 0|slot 12|you gave 3
# why: block and offset exchanged
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size):
    return [block_table[p // block_size] + (p % block_size) * block_size for p in range(start, end)]
