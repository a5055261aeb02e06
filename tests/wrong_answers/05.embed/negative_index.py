# check: ids of other ranks
# words: id 0 should give zeros
# why: indexes with negative numbers: torch counts from the end
# passes ordinary: no


def embed(input_ids, weight, first, last):
    local = (input_ids - first).clamp(max=len(weight) - 1)
    return weight[local] * (input_ids < last)[:, None]
