# check: lengths and ids
# words: one randint of random.Random(seed)
# why: the same seed in another library gives other numbers
# passes ordinary: no
import torch


def make_workload(seed=0, num_requests=256, min_len=100, max_len=1024, vocab_size=10001, min_output=None, max_output=None):
    low = min_len if min_output is None else min_output
    high = max_len if max_output is None else max_output
    generator = torch.Generator().manual_seed(seed)

    def draw(least, most, count=1):
        return torch.randint(least, most + 1, (count,), generator=generator).tolist()

    prompts = [draw(0, 10000, draw(min_len, max_len)[0]) for _ in range(num_requests)]
    outputs = draw(low, high, num_requests)
    return [([t % vocab_size for t in p], n) for p, n in zip(prompts, outputs)]
