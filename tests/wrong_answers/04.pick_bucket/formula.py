# check: small batches
# words: expected bucket 1, you gave 16
# why: the small ones are forgotten
# passes ordinary: yes
def pick_bucket(batch_size, buckets):
    up = -(-batch_size // 16) * 16
    return min(up, buckets[-1]) if buckets and batch_size <= buckets[-1] else None
