def pick_bucket(batch_size, buckets):
    for bucket in buckets:
        if batch_size <= bucket:
            return bucket
    return None
