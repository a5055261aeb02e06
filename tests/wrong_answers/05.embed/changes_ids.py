# check: all ids here
# words: changed its argument input_ids
# why: subtracts in place: the caller's ids are others afterwards
# passes ordinary: no
import torch
import torch.nn.functional as F


def embed(input_ids, weight, first, last):
    mine = (input_ids >= first) & (input_ids < last)
    input_ids -= first
    return F.embedding(torch.where(mine, input_ids, 0), weight) * mine[:, None]
