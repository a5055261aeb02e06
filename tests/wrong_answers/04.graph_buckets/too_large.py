# check: a missing tail
# words: no batch is larger than 100|112
# why: rounded up to the next step: buffers larger than any batch
# passes ordinary: yes
def graph_buckets(max_num_seqs, limit=512, step=16):
    largest = min(max_num_seqs, limit)
    up = -(-largest // step) * step
    return [b for b in (1, 2, 4, 8) if b < min(largest, step)] + list(range(step, up + 1, step))
