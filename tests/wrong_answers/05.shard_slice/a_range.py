# check: one rank
# words: expected a slice|range
# why: a range, which indexes nothing
# passes ordinary: no
def shard_slice(size, rank, ranks, what="size"):
    part = size // ranks
    return range(rank * part, (rank + 1) * part)
