def load_columns(target, source, columns):
    whole = (slice(None),) * (len(source.get_shape()) - 1)
    target[...] = source[(*whole, columns)] if whole else source[:]
