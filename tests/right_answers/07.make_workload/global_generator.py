# remark: random.Random(seed)
import random


def make_workload(seed=0, num_requests=256, min_len=100, max_len=1024, vocab_size=10001,
                  min_output=None, max_output=None):
    random.seed(seed)
    prompts = [[random.randint(0, 10000) for _ in range(random.randint(min_len, max_len))]
               for _ in range(num_requests)]
    outputs = [random.randint(min_output or min_len, max_output or max_len)
               for _ in range(num_requests)]
    return [([token % vocab_size for token in prompt], count)
            for prompt, count in zip(prompts, outputs)]
