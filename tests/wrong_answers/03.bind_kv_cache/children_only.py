# check: three layers
# words: still empty
# why: model.children() does not look deep
# passes ordinary: no
from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    i = 0
    for layer in model.children():
        if isinstance(layer, Attention):
            layer.k_cache, layer.v_cache = kv_cache[0, i], kv_cache[1, i]
            i += 1
