# check: the default engine
# words: expected a list of batch sizes, you returned a set
# why: a set has no order
# passes ordinary: no
def graph_buckets(max_num_seqs, limit=512, step=16):
    largest = min(max_num_seqs, limit)
    sizes = {b for b in (1, 2, 4, 8) if b < min(largest, step)} | {largest}
    return sizes | set(range(step, largest, step))
