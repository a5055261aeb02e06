# check: one part, the second rank
# words: you read 24 numbers|12
# why: reads the whole tensor, then cuts: every rank reads everything
# passes ordinary: yes
def load_rows(target, source, slices, part):
    start = sum(s.stop - s.start for s in slices[:part])
    rows = slices[part]
    target[start : start + rows.stop - rows.start].copy_(source[:][rows])
