# check: the longest is last
# words: row 1|begin with [0, 6]
# why: block 0 taken for filling
# passes ordinary: no
def pad_block_tables(block_tables):
    width = max((len(t) for t in block_tables), default=0)
    return [[b or -1 for b in t] + [-1] * (width - len(t)) for t in block_tables]
