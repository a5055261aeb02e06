# check: weight, the first of two
# words: RuntimeError
# why: cuts the rows, as a column-parallel layer does
# passes ordinary: no
def load_columns(target, source, columns):
    target.copy_(source[columns])
