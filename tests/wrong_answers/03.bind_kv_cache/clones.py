# check: three layers
# words: layer 0's k_cache is a copy|view
# why: clone: the memory is taken twice
# passes ordinary: yes
from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    layers = [m for m in model.modules() if isinstance(m, Attention)]
    if len(layers) != kv_cache.shape[1]:
        raise ValueError(f"{len(layers)} layers, {kv_cache.shape[1]} in the cache")
    for i, layer in enumerate(layers):
        layer.k_cache = kv_cache[0, i].clone()
        layer.v_cache = kv_cache[1, i].clone()
