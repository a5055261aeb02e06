# check: bfloat16
# words: bfloat16|float32
# why: a float32 mask widens the result
# passes ordinary: yes
import torch
import torch.nn.functional as F


def embed(input_ids, weight, first, last):
    mine = (input_ids >= first) & (input_ids < last)
    return F.embedding(torch.where(mine, input_ids - first, 0), weight) * mine.float()[:, None]
