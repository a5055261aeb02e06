# check: starts inside a block
# words: position 6|slot 10|you gave 8
# why: the offset is counted from the chunk: wrong when a chunk ended inside a block
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size):
    return [
        block_table[p // block_size] * block_size + (p - start) % block_size
        for p in range(start, end)
    ]
