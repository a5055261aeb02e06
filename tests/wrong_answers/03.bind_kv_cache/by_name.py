# check: twelve layers
# words: layer 2's k_cache should be K of layer 2|K of layer 4
# why: sorted by name: layer 10 comes before layer 2
# passes ordinary: yes
from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    named = sorted((n, m) for n, m in model.named_modules() if isinstance(m, Attention))
    if len(named) != kv_cache.shape[1]:
        raise ValueError("another number of layers")
    for i, (_, layer) in enumerate(named):
        layer.k_cache, layer.v_cache = kv_cache[0, i], kv_cache[1, i]
