# check: one block
# words: expected a list of 4 slots|generator
# why: a generator instead of a list
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size):
    return (block_table[p // block_size] * block_size + p % block_size for p in range(start, end))
