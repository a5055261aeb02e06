# check: weight, one rank
# words: what it was before|copy_
# why: replaces the memory that the layer holds
# passes ordinary: no
def load_columns(target, source, columns):
    target.data = source[:, columns] if len(source.get_shape()) == 2 else source[:]
