# check: greedy
# words: None | return
# why: the result is not returned
# passes ordinary: no
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    token = (scaled.softmax(-1).cumsum(-1) <= noise[:, None]).sum(-1)
