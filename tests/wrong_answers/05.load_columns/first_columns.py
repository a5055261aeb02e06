# check: weight, the second of two
# words: target[0, 0] should be disk[0, 4], it is disk[0, 0]
# why: the first rank's columns on every rank
# passes ordinary: no
def load_columns(target, source, columns):
    target.copy_(source[:, : target.shape[1]] if target.ndim == 2 else source[:])
