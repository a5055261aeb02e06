# check: all ids here
# words: id 4 should give row 0
# why: the first id counted as another rank's
# passes ordinary: no
import torch
import torch.nn.functional as F


def embed(input_ids, weight, first, last):
    mine = (input_ids > first) & (input_ids < last)
    return F.embedding(torch.where(mine, input_ids - first, 0), weight) * mine[:, None]
