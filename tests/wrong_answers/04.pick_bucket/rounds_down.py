# check: between two buckets
# words: you gave 32|does not hold 37
# why: the largest that is not larger
# passes ordinary: no
def pick_bucket(batch_size, buckets):
    fitting = [b for b in buckets if b <= batch_size]
    return fitting[-1] if fitting else None
