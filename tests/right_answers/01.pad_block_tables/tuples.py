def pad_block_tables(block_tables):
    width = max((len(table) for table in block_tables), default=0)
    return tuple(tuple(table) + (-1,) * (width - len(table)) for table in block_tables)
