# check: temperature
# words: changed its argument logits
# why: the logits are divided in place
# passes ordinary: yes
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    greedy = logits.argmax(-1)
    scaled = logits.float().div_(torch.where(cold, 1.0, temperatures)[:, None])
    token = (scaled.softmax(-1).cumsum(-1) <= noise[:, None]).sum(-1)
    last = logits.shape[1] - 1 - (logits.flip(-1) > -torch.inf).int().argmax(-1)
    return torch.where(cold, greedy, torch.minimum(token, last))
