"""The requests of a benchmark: random token ids, random lengths, one fixed order of drawing."""

import random
from collections.abc import Sequence

Workload = list[tuple[list[int], int]]

LARGEST_ID = 10000  # the article draws token ids from 0 to here, whatever the vocabulary


def make_workload(
    seed: int = 0,
    num_requests: int = 256,
    min_len: int = 100,
    max_len: int = 1024,
    vocab_size: int = LARGEST_ID + 1,
    min_output: int | None = None,
    max_output: int | None = None,
) -> Workload:
    """Requests as (prompt token ids, max_tokens), drawn in the order of nano-vllm's benchmark.

    Every number is one `randint` of a `random.Random(seed)`. First all prompts, each its length
    (min_len..max_len) and then its ids (0..10000); only then all output lengths (min_output..
    max_output, each as the prompts' unless given). Any other order draws other numbers from the
    same seed. Ids are then cut to the model: id % vocab_size.

    >>> work = make_workload()
    >>> sum(len(prompt) for prompt, _ in work), sum(n for _, n in work)
    (142827, 133966)
    """
    low = min_len if min_output is None else min_output
    high = max_len if max_output is None else max_output
    draw = random.Random(seed)
    prompts = [
        [draw.randint(0, LARGEST_ID) for _ in range(draw.randint(min_len, max_len))]
        for _ in range(num_requests)
    ]
    outputs = [draw.randint(low, high) for _ in range(num_requests)]
    cut = [[token % vocab_size for token in prompt] for prompt in prompts]
    return list(zip(cut, outputs, strict=True))


def with_fresh_ids(
    workload: Sequence[tuple[Sequence[int], int]], seed: int, vocab_size: int
) -> Workload:
    """The same lengths with other token ids, for a repeat that no prefix cache has seen."""
    draw = random.Random(f"fresh ids {seed}")
    top = min(LARGEST_ID, vocab_size - 1)
    return [([draw.randint(0, top) for _ in prompt], count) for prompt, count in workload]


def same_length_workload(num_requests: int, prompt_len: int, max_tokens: int) -> Workload:
    """Equal requests, for a probe; give them ids with `with_fresh_ids`."""
    return [([0] * prompt_len, max_tokens) for _ in range(num_requests)]
