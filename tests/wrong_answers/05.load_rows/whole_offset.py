# check: up, the second rank
# words: the sizes do not fit|rows 4 to 7 of target's 8
# why: the offset is that of the whole layer, not of this rank's part
# passes ordinary: no
def load_rows(target, source, slices, part):
    start = sum(s.stop for s in slices[:part])
    rows = slices[part]
    target[start : start + rows.stop - rows.start].copy_(source[rows])
