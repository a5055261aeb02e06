# check: unlike lengths
# words: row 0|begin with [7, 2, 5]
# why: cut to the shortest table
# passes ordinary: no
def pad_block_tables(block_tables):
    width = min((len(t) for t in block_tables), default=0)
    return [list(t[:width]) for t in block_tables]
