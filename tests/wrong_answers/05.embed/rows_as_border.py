# check: padding rows
# words: id 97 should give zeros|padding
# why: takes the shard's rows for the vocabulary's: padding is looked up
# passes ordinary: yes
import torch
import torch.nn.functional as F


def embed(input_ids, weight, first, last):
    local = input_ids - first
    mine = (local >= 0) & (local < len(weight))
    return F.embedding(torch.where(mine, local, 0), weight) * mine[:, None]
