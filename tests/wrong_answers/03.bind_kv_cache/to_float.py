# check: bfloat16
# words: is a copy
# why: a conversion copies unless the dtype is float32 already
# passes ordinary: yes
from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    layers = [m for m in model.modules() if isinstance(m, Attention)]
    if len(layers) != kv_cache.shape[1]:
        raise ValueError(f"{len(layers)} layers, {kv_cache.shape[1]} in the cache")
    for i, layer in enumerate(layers):
        layer.k_cache = kv_cache[0, i].float()
        layer.v_cache = kv_cache[1, i].float()
