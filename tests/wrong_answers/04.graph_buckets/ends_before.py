# check: the default engine
# words: your largest bucket is 496|497 to 512
# why: range leaves its end out
# passes ordinary: no
def graph_buckets(max_num_seqs, limit=512, step=16):
    largest = min(max_num_seqs, limit)
    return [1, 2, 4, 8] + list(range(step, largest, step))
