# check: a table without blocks
# words: expected 2 rows|you gave 1
# why: a sequence without blocks loses its row
# passes ordinary: yes
def pad_block_tables(block_tables):
    width = max((len(t) for t in block_tables), default=0)
    return [list(t) + [-1] * (width - len(t)) for t in block_tables if t]
