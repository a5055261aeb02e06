# check: the first of two
# words: slice(0, 6)|one piece
# why: every ranks-th element
# passes ordinary: no
def shard_slice(size, rank, ranks, what="size"):
    return slice(rank, size, ranks)
