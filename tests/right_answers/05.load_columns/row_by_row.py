def load_columns(target, source, columns):
    if target.dim() == 1:
        target.copy_(source[0 : len(target)])
        return
    for row in range(target.shape[0]):
        target[row].copy_(source[row : row + 1, columns][0])
