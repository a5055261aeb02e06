# check: rounding
# words: outside of the | Rounding
# why: rounding leaves the number past the last border
# passes ordinary: yes
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    token = (scaled.softmax(-1).cumsum(-1) <= noise[:, None]).sum(-1)
    return torch.where(cold, logits.argmax(-1), token)
