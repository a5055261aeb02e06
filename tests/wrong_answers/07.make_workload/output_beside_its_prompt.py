# check: lengths and ids
# words: prompt|beside its prompt
# why: natural to write, and another workload from the second request on
# passes ordinary: no
import random


def make_workload(seed=0, num_requests=256, min_len=100, max_len=1024, vocab_size=10001, min_output=None, max_output=None):
    low = min_len if min_output is None else min_output
    high = max_len if max_output is None else max_output
    draw = random.Random(seed)
    work = []
    for _ in range(num_requests):
        prompt = [draw.randint(0, 10000) % vocab_size for _ in range(draw.randint(min_len, max_len))]
        work.append((prompt, draw.randint(low, high)))
    return work
