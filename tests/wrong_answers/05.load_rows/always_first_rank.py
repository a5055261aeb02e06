# check: one part, the second rank
# words: this rank's rows are [3, 6)
# why: reads the first rows, whatever the rank
# passes ordinary: no
def load_rows(target, source, slices, part):
    start = sum(s.stop - s.start for s in slices[:part])
    length = slices[part].stop - slices[part].start
    target[start : start + length].copy_(source[:length])
