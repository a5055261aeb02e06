# check: bias
# words: RuntimeError
# why: cuts the bias, too
# passes ordinary: yes
def load_columns(target, source, columns):
    target.copy_(source[..., columns])
