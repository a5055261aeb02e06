# check: up
# words: row 0 of target should hold what it held before|part 1 lies behind
# why: every part goes to the top of the target
# passes ordinary: no
def load_rows(target, source, slices, part):
    rows = slices[part]
    target[: rows.stop - rows.start].copy_(source[rows])
