# check: one part, one rank
# words: indexed by slices, not by a list
# why: a list of row numbers, which a file cannot serve
# passes ordinary: no
def load_rows(target, source, slices, part):
    start = sum(s.stop - s.start for s in slices[:part])
    rows = list(range(slices[part].start, slices[part].stop))
    target[start : start + len(rows)].copy_(source[rows])
