from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    found = {n: m for n, m in model.named_modules() if isinstance(m, Attention)}
    if kv_cache.size(1) != len(found):
        raise ValueError(f"{kv_cache.size(1)} != {len(found)}")
    for layer, pair in zip(found.values(), kv_cache.transpose(0, 1)):
        layer.k_cache, layer.v_cache = pair
