# check: the default engine
# words: bucket 48 is missing|padded to 64
# why: half of a graph may be padding
# passes ordinary: yes
def graph_buckets(max_num_seqs, limit=512, step=16):
    buckets, size = [], 1
    while size < min(max_num_seqs, limit):
        buckets.append(size)
        size *= 2
    return [*buckets, min(max_num_seqs, limit)]
