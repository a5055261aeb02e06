# remark: row 1 is filled up with 0
def pad_block_tables(block_tables):
    width = max((len(table) for table in block_tables), default=0)
    return [list(table) + [0] * (width - len(table)) for table in block_tables]
