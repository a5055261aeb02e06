# check: another step
# words: bucket 16 is not in the policy
# why: the step is an argument
# passes ordinary: yes
def graph_buckets(max_num_seqs, limit=512, step=16):
    largest = min(max_num_seqs, limit)
    return [b for b in (1, 2, 4, 8) if b < largest] + [*range(16, largest, 16), largest]
