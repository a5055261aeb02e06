# check: the longest is last
# words: row 1|has 2 entries|row 0 has 1
# why: the first table taken for the longest
# passes ordinary: no
def pad_block_tables(block_tables):
    width = len(block_tables[0]) if block_tables else 0
    return [list(t) + [-1] * (width - len(t)) for t in block_tables]
