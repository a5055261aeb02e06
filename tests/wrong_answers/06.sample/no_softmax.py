# check: look-up
# words: is the last border 1
# why: logits are no probabilities
# passes ordinary: no
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    token = (scaled.cumsum(-1) <= noise[:, None]).sum(-1)
    return torch.where(cold, logits.argmax(-1), token)
