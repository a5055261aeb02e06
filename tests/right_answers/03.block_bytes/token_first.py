def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    if tp >= num_kv_heads:
        heads = 1
    else:
        heads = num_kv_heads // tp
    token = 0
    for _ in range(num_layers):
        for _ in ("K", "V"):
            token += heads * head_dim * itemsize
    return token * block_size
