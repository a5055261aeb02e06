# check: look-up
# words: two results | generator
# why: torch's own generator instead of the argument
# passes ordinary: yes
import torch

from nanoengine.layers.sampler import GREEDY_BELOW


def sample(logits, temperatures, noise):
    cold = temperatures < GREEDY_BELOW
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    token = torch.multinomial(scaled.softmax(-1), 1)[:, 0]
    return torch.where(cold, logits.argmax(-1), token)
