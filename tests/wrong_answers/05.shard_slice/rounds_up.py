# check: cannot be divided
# words: expected ConfigError
# why: parts rounded up, as the vocabulary's are
# passes ordinary: yes
def shard_slice(size, rank, ranks, what="size"):
    part = -(-size // ranks)
    return slice(rank * part, min((rank + 1) * part, size))
