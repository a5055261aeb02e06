# check: cannot be divided
# words: you raised AssertionError
# why: nano-vllm's assert: no word about what does not fit
# passes ordinary: yes
def shard_slice(size, rank, ranks, what="size"):
    assert size % ranks == 0
    part = size // ranks
    return slice(rank * part, (rank + 1) * part)
