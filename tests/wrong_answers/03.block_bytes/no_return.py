# check: Qwen3-0.6B
# words: returned None|return
# why: the result is printed
# passes ordinary: no
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    print(2 * num_layers * block_size * max(1, num_kv_heads // tp) * head_dim * itemsize)
