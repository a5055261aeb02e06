# check: unlike lengths
# words: row 1|begin with [3]
# why: filled up on the left
# passes ordinary: no
def pad_block_tables(block_tables):
    width = max((len(t) for t in block_tables), default=0)
    return [[-1] * (width - len(t)) + list(t) for t in block_tables]
