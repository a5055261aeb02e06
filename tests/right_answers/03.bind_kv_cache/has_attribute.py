def bind_kv_cache(model, kv_cache):
    layers = [m for m in model.modules() if hasattr(m, "k_cache") and hasattr(m, "v_cache")]
    for layer, k, v in zip(layers, *kv_cache.unbind(0), strict=True):
        layer.k_cache, layer.v_cache = k, v
