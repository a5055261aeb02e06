# check: another step
# words: bucket 16 is not in the policy|after 8 comes 32
# why: the list begins at 16 whatever the step
# passes ordinary: yes
def graph_buckets(max_num_seqs, limit=512, step=16):
    largest = min(max_num_seqs, limit)
    sizes = [size for size in (1, 2, 4, 8, *range(16, largest + 1, step)) if size <= largest]
    return sizes if sizes[-1] == largest else [*sizes, largest]
