# check: the borders
# words: id 8
# why: last counted as mine
# passes ordinary: no
import torch
import torch.nn.functional as F


def embed(input_ids, weight, first, last):
    mine = (input_ids >= first) & (input_ids <= last)
    local = torch.where(mine, input_ids - first, 0).clamp(max=len(weight) - 1)
    return F.embedding(local, weight) * mine[:, None]
