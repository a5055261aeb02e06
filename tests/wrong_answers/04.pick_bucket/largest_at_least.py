# check: a batch beyond the largest graph
# words: the largest graph holds 512|expected None|you gave 512
# why: 513 sequences do not fit into 512 rows
# passes ordinary: yes
def pick_bucket(batch_size, buckets):
    return next((b for b in buckets if b >= batch_size), buckets[-1] if buckets else None)
