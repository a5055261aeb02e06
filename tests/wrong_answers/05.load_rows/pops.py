# check: one part, one rank
# words: changed `slices`
# why: uses the layer's own list up
# passes ordinary: no
def load_rows(target, source, slices, part):
    start = 0
    for _ in range(part):
        first = slices.pop(0)
        start += first.stop - first.start
    rows = slices.pop(0)
    target[start : start + rows.stop - rows.start].copy_(source[rows])
