# check: several blocks
# words: position 4|you gave 20
# why: every token put into the last block, as decode may do
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size):
    return [block_table[-1] * block_size + p % block_size for p in range(start, end)]
