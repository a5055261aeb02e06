# check: between two buckets
# words: you gave 6|its index
# why: bisect gives a place
# passes ordinary: no
from bisect import bisect_left


def pick_bucket(batch_size, buckets):
    place = bisect_left(buckets, batch_size)
    return place if place < len(buckets) else None
