# check: greedy
# words: shape [1] | [1, 1]
# why: keepdim leaves [b, 1]
# passes ordinary: no
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    token = (scaled.softmax(-1).cumsum(-1) <= noise[:, None]).sum(-1, keepdim=True)
    return torch.where(cold[:, None], logits.argmax(-1, keepdim=True), token)
