# check: one block
# words: list index out of range|line 7
# why: the end counted in
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size):
    return [
        block_table[p // block_size] * block_size + p % block_size
        for p in range(start, end + 1)
    ]
