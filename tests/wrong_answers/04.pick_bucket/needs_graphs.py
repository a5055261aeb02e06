# check: an engine without graphs
# words: IndexError
# why: an eager engine asks, too
# passes ordinary: no
def pick_bucket(batch_size, buckets):
    if batch_size > buckets[-1]:
        return None
    return min(b for b in buckets if b >= batch_size)
