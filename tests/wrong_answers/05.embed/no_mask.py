# check: ids of other ranks
# words: id 0 should give zeros
# why: other ranks' ids give row 0, so the sum holds it, too
# passes ordinary: no
import torch
import torch.nn.functional as F


def embed(input_ids, weight, first, last):
    mine = (input_ids >= first) & (input_ids < last)
    return F.embedding(torch.where(mine, input_ids - first, 0), weight)
