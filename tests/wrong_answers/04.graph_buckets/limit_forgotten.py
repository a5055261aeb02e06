# check: more than graphs are made for
# words: no batch is larger than 512|600
# why: batches above the limit run eagerly
# passes ordinary: yes
def graph_buckets(max_num_seqs, limit=512, step=16):
    small = [b for b in (1, 2, 4, 8) if b < min(max_num_seqs, step)]
    return [*small, *range(step, max_num_seqs, step), max_num_seqs]
