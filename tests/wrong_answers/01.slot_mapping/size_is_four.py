# check: other block sizes
# words: block size 8
# why: the block size of the example typed in
# passes ordinary: yes
def slot_mapping(block_table, start, end, block_size):
    return [block_table[p // 4] * 4 + p % 4 for p in range(start, end)]
