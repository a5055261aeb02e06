# check: bias
# words: IndexError
# why: indexes two axes: a bias has one
# passes ordinary: yes
def load_rows(target, source, slices, part):
    start = sum(s.stop - s.start for s in slices[:part])
    rows = slices[part]
    target[start : start + rows.stop - rows.start, :].copy_(source[rows, :])
