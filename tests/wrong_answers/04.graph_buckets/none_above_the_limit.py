# check: more than graphs are made for
# words: there are no buckets|batches of 1 to 512
# why: large batches run eagerly, so the engine is taken for an eager one
# passes ordinary: yes
def graph_buckets(max_num_seqs, limit=512, step=16):
    if max_num_seqs > limit:
        return []
    small = [size for size in (1, 2, 4, 8) if size < min(max_num_seqs, step)]
    return [*small, *range(step, max_num_seqs, step), max_num_seqs]
