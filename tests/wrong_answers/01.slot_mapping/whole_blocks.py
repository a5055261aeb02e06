# check: several blocks
# words: expected 6 slots|you gave 8
# why: slots by whole blocks, the last one only partly filled (MinivLLM PR 73)
# passes ordinary: no
def slot_mapping(block_table, start, end, block_size):
    slots = []
    for block in block_table[start // block_size : -(-end // block_size)]:
        slots += range(block * block_size, (block + 1) * block_size)
    return slots
