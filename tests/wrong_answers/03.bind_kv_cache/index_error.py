# check: a cache with a layer too few
# words: expected ValueError|raised IndexError
# why: half of the layers are bound before it is noticed
# passes ordinary: yes
from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    i = 0
    for layer in model.modules():
        if isinstance(layer, Attention):
            layer.k_cache, layer.v_cache = kv_cache[0, i], kv_cache[1, i]
            i += 1
    if i != kv_cache.shape[1]:
        raise ValueError("not all of the cache is bound")
