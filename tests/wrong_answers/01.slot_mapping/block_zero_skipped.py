# check: block 0 in use
# words: position 4|slot 0
# why: 0 taken for "no block"
# passes ordinary: yes
def slot_mapping(block_table, start, end, block_size):
    slots = []
    for p in range(start, end):
        block = block_table[p // block_size]
        slots.append(block * block_size + p % block_size if block else -1)
    return slots
