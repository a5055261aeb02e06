# check: a missing tail
# words: the largest batch has 100 sequences|97 to 100
# why: nano-vllm: a maximum that no step hits has no graph
# passes ordinary: yes
def graph_buckets(max_num_seqs, limit=512, step=16):
    largest = min(max_num_seqs, limit)
    return [b for b in (1, 2, 4, 8) if b < min(largest, step)] + list(
        range(step, largest + 1, step)
    )
