# check: cannot be divided
# words: cannot be divided by 4|expected ConfigError
# why: the last rank takes the rest: shards of different sizes
# passes ordinary: yes
def shard_slice(size, rank, ranks, what="size"):
    part = size // ranks
    stop = size if rank == ranks - 1 else (rank + 1) * part
    return slice(rank * part, stop)
