from bisect import bisect_left


def pick_bucket(batch_size, buckets):
    place = bisect_left(buckets, batch_size)
    return buckets[place] if place < len(buckets) else None
