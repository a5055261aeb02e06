# check: weight, the first of two
# words: you read 24 numbers|12
# why: reads the whole weight and cuts afterwards
# passes ordinary: yes
def load_columns(target, source, columns):
    whole = source[:]
    target.copy_(whole[:, columns] if target.ndim == 2 else whole)
