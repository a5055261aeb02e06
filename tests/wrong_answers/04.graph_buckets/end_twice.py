# check: few sequences
# words: bucket 8 is there twice
# why: the largest batch may be one of the small ones
# passes ordinary: yes
def graph_buckets(max_num_seqs, limit=512, step=16):
    largest = min(max_num_seqs, limit)
    small = [b for b in (1, 2, 4, 8) if b <= largest]
    return [*small, *range(step, largest, step), largest]
