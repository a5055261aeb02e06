# check: bfloat16
# words: go on in float32
# why: bfloat16 cannot tell neighbouring borders apart
# passes ordinary: yes
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    scaled = logits / torch.where(cold, 1.0, temperatures)[:, None].to(logits.dtype)
    token = (scaled.softmax(-1).cumsum(-1) <= noise[:, None]).sum(-1)
    last = logits.shape[1] - 1 - (logits.flip(-1) > -torch.inf).int().argmax(-1)
    return torch.where(cold, logits.argmax(-1), torch.minimum(token, last))
