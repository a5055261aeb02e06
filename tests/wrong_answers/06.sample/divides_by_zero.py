# check: greedy
# words: largest logit | NaN
# why: logits / 0 is infinite or NaN
# passes ordinary: no
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    scaled = logits.float() / temperatures[:, None]
    token = (scaled.softmax(-1).cumsum(-1) <= noise[:, None]).sum(-1)
    last = logits.shape[1] - 1 - (logits.flip(-1) > -torch.inf).int().argmax(-1)
    return torch.minimum(token, last)
