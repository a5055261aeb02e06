# check: unlike lengths
# words: changed its argument 1|copy
# why: the sequences own these lists
# passes ordinary: no
def pad_block_tables(block_tables):
    width = max((len(t) for t in block_tables), default=0)
    for table in block_tables:
        table.extend([-1] * (width - len(table)))
    return block_tables
