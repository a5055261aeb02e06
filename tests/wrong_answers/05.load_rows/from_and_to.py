# check: one part, the second rank
# words: the sizes do not fit|rows 0 to 2 of target's 3
# why: puts the rows where they were on disk
# passes ordinary: no
def load_rows(target, source, slices, part):
    rows = slices[part]
    target[rows].copy_(source[rows])
