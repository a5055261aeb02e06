def pick_bucket(batch_size, buckets):
    return min((b for b in buckets if b >= batch_size), default=None)
