# check: weight, one rank
# words: what it was before|copy_
# why: binds the local name only
# passes ordinary: no
def load_columns(target, source, columns):
    target = source[:, columns] if target.ndim == 2 else source[:]
