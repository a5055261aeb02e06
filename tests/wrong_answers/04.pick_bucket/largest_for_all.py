# check: between two buckets
# words: expected bucket 48, you gave 512
# why: right, and as slow as the largest batch
# passes ordinary: yes
def pick_bucket(batch_size, buckets):
    return buckets[-1] if buckets and batch_size <= buckets[-1] else None
