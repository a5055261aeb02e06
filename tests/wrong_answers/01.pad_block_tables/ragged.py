# check: unlike lengths
# words: row 1 has 1 entries|one length
# why: not filled up at all
# passes ordinary: no
def pad_block_tables(block_tables):
    return [list(t) for t in block_tables]
