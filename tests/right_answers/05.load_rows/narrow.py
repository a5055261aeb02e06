def load_rows(target, source, slices, part):
    lengths = [rows.stop - rows.start for rows in slices]
    view = target.narrow(0, sum(lengths[:part]), lengths[part])
    view[:] = source[slices[part], ...]
