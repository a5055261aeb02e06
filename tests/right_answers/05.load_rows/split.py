def load_rows(target, source, slices, part):
    pieces = target.split([s.stop - s.start for s in slices])
    pieces[part].copy_(source[slices[part]])
