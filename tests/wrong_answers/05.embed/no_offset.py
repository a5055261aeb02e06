# check: all ids here
# words: IndexError
# why: looks the global id up in the shard
# passes ordinary: no
import torch
import torch.nn.functional as F


def embed(input_ids, weight, first, last):
    mine = (input_ids >= first) & (input_ids < last)
    return F.embedding(torch.where(mine, input_ids, 0), weight) * mine[:, None]
