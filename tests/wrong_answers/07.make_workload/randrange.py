# check: lengths and ids
# words: largest length|randrange
# why: the longest length never comes
# passes ordinary: no
import random


def make_workload(seed=0, num_requests=256, min_len=100, max_len=1024, vocab_size=10001, min_output=None, max_output=None):
    low = min_len if min_output is None else min_output
    high = max_len if max_output is None else max_output
    draw = random.Random(seed)
    prompts = [
        [draw.randint(0, 10000) for _ in range(draw.randrange(min_len, max_len))]
        for _ in range(num_requests)
    ]
    outputs = [draw.randrange(low, high) for _ in range(num_requests)]
    return [([t % vocab_size for t in p], n) for p, n in zip(prompts, outputs)]
