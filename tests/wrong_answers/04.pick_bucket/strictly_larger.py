# check: exactly a bucket
# words: expected bucket 48, you gave 64|16 padded rows fewer
# why: a batch of 48 is padded to 64
# passes ordinary: yes
def pick_bucket(batch_size, buckets):
    return next((b for b in buckets if b > batch_size), None)
