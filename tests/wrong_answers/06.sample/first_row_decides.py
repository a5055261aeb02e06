# check: batches
# words: temperature of row 0 | each row has its own
# why: the first row's temperature is taken for all
# passes ordinary: no
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    if float(temperatures[0]) < GREEDY_BELOW:
        return logits.argmax(-1)
    scaled = logits.float() / temperatures[0]
    cold = torch.zeros(len(logits), dtype=torch.bool)
    token = (scaled.softmax(-1).cumsum(-1) <= noise[:, None]).sum(-1)
    last = logits.shape[1] - 1 - (logits.flip(-1) > -torch.inf).int().argmax(-1)
    return torch.where(cold, logits.argmax(-1), torch.minimum(token, last))
