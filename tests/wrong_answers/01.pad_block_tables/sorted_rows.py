# check: the longest is last
# words: row 0|begin with [4]
# why: rows in another order than the sequences
# passes ordinary: no
def pad_block_tables(block_tables):
    width = max((len(t) for t in block_tables), default=0)
    return sorted((list(t) + [-1] * (width - len(t)) for t in block_tables), key=lambda t: t.count(-1))
