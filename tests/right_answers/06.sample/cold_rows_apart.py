import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    tokens = logits.argmax(-1)
    warm = (temperatures >= GREEDY_BELOW).nonzero()[:, 0]
    if len(warm) == 0:
        return tokens
    p = (logits[warm].double() / temperatures[warm, None]).softmax(-1)
    inside = p.cumsum(-1) > noise[warm, None]
    inside |= p.cumsum(-1) >= p.cumsum(-1)[:, -1:]
    tokens[warm] = inside.int().argmax(-1)
    return tokens
