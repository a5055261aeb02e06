# check: one block
# words: returned None|return
# why: the result is printed
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size):
    slots = [block_table[p // block_size] * block_size + p % block_size for p in range(start, end)]
    print(slots)
