def load_rows(target, source, slices, part):
    at = 0
    for index, rows in enumerate(slices):
        for row in range(rows.start, rows.stop):
            if index == part:
                target[at] = source[row : row + 1][0]
            at += 1
