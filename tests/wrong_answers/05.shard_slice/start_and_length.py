# check: the last of two
# words: expected slice(6, 12)|not how long it is
# why: start and length, as narrow() takes them
# passes ordinary: no
def shard_slice(size, rank, ranks, what="size"):
    part = size // ranks
    return slice(rank * part, part)
