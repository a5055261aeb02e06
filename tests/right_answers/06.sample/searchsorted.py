import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    borders = scaled.double().softmax(-1).cumsum(-1)
    token = torch.searchsorted(borders, noise.double()[:, None], right=True)[:, 0]
    last = logits.shape[1] - 1 - (logits.flip(-1) > -torch.inf).int().argmax(-1)
    return torch.where(cold, logits.argmax(-1), torch.minimum(token, last))
