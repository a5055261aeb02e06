# check: the default engine
# words: should ascend
# why: the order of capturing, not of picking
# passes ordinary: no
def graph_buckets(max_num_seqs, limit=512, step=16):
    largest = min(max_num_seqs, limit)
    sizes = {b for b in (1, 2, 4, 8) if b < min(largest, step)} | {largest}
    return sorted(sizes | set(range(step, largest, step)), reverse=True)
