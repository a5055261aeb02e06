# check: k
# words: should hold
# why: parts of equal size: true for gate and up, not for q, k, v
# passes ordinary: no
def load_rows(target, source, slices, part):
    rows = slices[part]
    length = rows.stop - rows.start
    target[part * length : (part + 1) * length].copy_(source[rows])
