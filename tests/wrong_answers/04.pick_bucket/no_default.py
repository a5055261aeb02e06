# check: a batch beyond the largest graph
# words: StopIteration
# why: nano-vllm at batch 97 of 100
# passes ordinary: yes
def pick_bucket(batch_size, buckets):
    return next(b for b in buckets if b >= batch_size)
