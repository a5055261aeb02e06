# check: large vocabulary
# words: look the number up
# why: inside a block the sum must go on from the blocks before
# passes ordinary: yes
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    weights = (scaled - scaled.amax(-1, keepdim=True)).exp()
    padded = torch.nn.functional.pad(weights, (0, -weights.shape[1] % 4096)).view(len(logits), -1, 4096)
    sums = padded.sum(-1).double().cumsum(-1)
    target = noise.double()[:, None] * sums[:, -1:]
    block = (sums <= target).sum(-1).clamp(max=sums.shape[1] - 1)
    rows = torch.arange(len(logits))
    token = block * 4096 + (padded[rows, block].double().cumsum(-1) <= target).sum(-1)
    last = logits.shape[1] - 1 - (logits.flip(-1) > -torch.inf).int().argmax(-1)
    return torch.where(cold, logits.argmax(-1), torch.minimum(token, last))
