# check: greedy
# words: first of equally large
# why: the last of equal maxima
# passes ordinary: yes
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    token = (scaled.softmax(-1).cumsum(-1) <= noise[:, None]).sum(-1)
    last = logits.shape[1] - 1 - (logits.flip(-1) > -torch.inf).int().argmax(-1)
    greedy = logits.shape[1] - 1 - logits.flip(-1).argmax(-1)
    return torch.where(cold, greedy, torch.minimum(token, last))
