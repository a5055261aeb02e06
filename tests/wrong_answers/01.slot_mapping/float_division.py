# check: one block
# words: list indices must be integers|line 6
# why: / instead of //
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size):
    return [block_table[p / block_size] * block_size + p % block_size for p in range(start, end)]
