def embed(input_ids, weight, first, last):
    others = (input_ids < first) | (input_ids >= last)
    rows = (input_ids - first).masked_fill(others, 0)
    return weight.index_select(0, rows).masked_fill(others.unsqueeze(-1), 0)
