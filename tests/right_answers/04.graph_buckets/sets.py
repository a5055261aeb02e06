def graph_buckets(max_num_seqs, limit=512, step=16):
    largest = min(max_num_seqs, limit)
    sizes = {1, 2, 4, 8} & set(range(1, step))
    sizes |= set(range(step, largest + 1, step)) | {largest}
    return sorted(size for size in sizes if size <= largest)
