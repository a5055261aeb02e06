# check: the default engine
# words: bucket 3 is not in the policy|512 graphs instead of 36
# why: no padding at all, and 512 captures
# passes ordinary: yes
def graph_buckets(max_num_seqs, limit=512, step=16):
    return list(range(1, min(max_num_seqs, limit) + 1))
