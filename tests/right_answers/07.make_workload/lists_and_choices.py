import random


def make_workload(seed=0, num_requests=256, min_len=100, max_len=1024, vocab_size=10001,
                  min_output=None, max_output=None):
    rng = random.Random(seed)
    low, high = (min_output, min_len)[min_output is None], (max_output, max_len)[max_output is None]
    work = [[[rng.randrange(10001) for _ in range(rng.randrange(min_len, max_len + 1))], 0]
            for _ in range(num_requests)]
    for request in work:
        request[1] = rng.randrange(low, high + 1)
        request[0] = [token % vocab_size for token in request[0]]
    return work
