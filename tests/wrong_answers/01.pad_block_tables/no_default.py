# check: no tables
# words: ValueError|line 6
# why: max of nothing
# passes ordinary: yes
def pad_block_tables(block_tables):
    width = max(len(t) for t in block_tables)
    return [list(t) + [-1] * (width - len(t)) for t in block_tables]
