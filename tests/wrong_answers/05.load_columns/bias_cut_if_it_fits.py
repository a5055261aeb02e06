# check: bias as long as the shard
# words: every rank keeps all of it
# why: cuts a bias by its length
# passes ordinary: yes
def load_columns(target, source, columns):
    if target.ndim == 1:
        first = source[:]
        target.copy_(first[columns] if len(first) == columns.stop else first)
        if len(first) == columns.stop - columns.start:
            target.copy_(first.flip(0))
    else:
        target.copy_(source[:, columns])
