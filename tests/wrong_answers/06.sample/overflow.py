# check: large logits
# words: overflows | largest off first
# why: exp of the logits themselves overflows float32
# passes ordinary: yes
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    weights = scaled.exp()
    sums = weights.cumsum(-1)
    token = (sums <= noise[:, None] * sums[:, -1:]).sum(-1)
    last = logits.shape[1] - 1 - (logits.flip(-1) > -torch.inf).int().argmax(-1)
    return torch.where(cold, logits.argmax(-1), torch.minimum(token, last))
