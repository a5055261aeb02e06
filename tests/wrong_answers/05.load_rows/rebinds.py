# check: one part, one rank
# words: what it held before|copy_
# why: binds the local name only
# passes ordinary: no
def load_rows(target, source, slices, part):
    target = source[slices[part]]  # noqa: F841
