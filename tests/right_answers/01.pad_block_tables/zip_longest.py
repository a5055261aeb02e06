from itertools import zip_longest


def pad_block_tables(block_tables):
    columns = list(zip_longest(*block_tables, fillvalue=-1))
    return [[column[row] for column in columns] for row in range(len(block_tables))]
