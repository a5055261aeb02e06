from random import Random


def make_workload(seed=0, num_requests=256, min_len=100, max_len=1024, vocab_size=10001,
                  min_output=None, max_output=None):
    if min_output is None:
        min_output = min_len
    if max_output is None:
        max_output = max_len
    generator = Random(seed)
    prompts = []
    for _ in range(num_requests):
        length = generator.randint(min_len, max_len)
        prompt = []
        while len(prompt) < length:
            prompt.append(generator.randint(0, 10_000) % vocab_size)
        prompts.append(prompt)
    work = []
    for prompt in prompts:
        work.append((prompt, generator.randint(min_output, max_output)))
    return work
