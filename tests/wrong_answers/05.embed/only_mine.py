# check: ids of other ranks
# words: expected shape [3, 4]
# why: returns the rows of its own ids alone
# passes ordinary: no


def embed(input_ids, weight, first, last):
    mine = (input_ids >= first) & (input_ids < last)
    return weight[input_ids[mine] - first]
