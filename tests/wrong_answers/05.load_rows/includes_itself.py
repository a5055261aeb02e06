# check: one part, one rank
# words: the sizes do not fit|rows 0 to 5
# why: the offset counts the part itself
# passes ordinary: no
def load_rows(target, source, slices, part):
    start = sum(s.stop - s.start for s in slices[: part + 1])
    rows = slices[part]
    target[start : start + rows.stop - rows.start].copy_(source[rows])
