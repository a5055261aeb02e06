# check: all ids here
# words: id 4 should give row 0|zeros
# why: masks by the local row, so the own row 0 is lost
# passes ordinary: no
import torch
import torch.nn.functional as F


def embed(input_ids, weight, first, last):
    mine = (input_ids >= first) & (input_ids < last)
    local = torch.where(mine, input_ids - first, 0)
    return F.embedding(local, weight) * (local > 0)[:, None]
