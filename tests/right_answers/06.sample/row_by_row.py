import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    tokens = []
    for row, temperature, number in zip(logits.tolist(), temperatures.tolist(), noise.tolist()):
        if temperature < GREEDY_BELOW:
            tokens.append(row.index(max(row)))
            continue
        top = max(row)
        weights = [2.718281828459045 ** ((x - top) / temperature) for x in row]
        target, total = number * sum(weights), 0.0
        chosen = 0
        for token, weight in enumerate(weights):
            if weight > 0 and total <= target:
                chosen = token
            total += weight
        tokens.append(chosen)
    return torch.tensor(tokens)
