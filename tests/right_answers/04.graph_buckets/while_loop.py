def graph_buckets(max_num_seqs, limit=512, step=16):
    largest, found, size = min(max_num_seqs, limit), [], 1
    while size < largest:
        found.append(size)
        size = size + step if size >= step else min(2 * size, step)
        if size > 8 and size < step:
            size = step
    return found + [largest]
