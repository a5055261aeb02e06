# check: Qwen3-0.6B
# words: 29360128|you gave 14680064|2 times too small|K and V
# why: K is counted, V is forgotten
# passes ordinary: yes
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    return num_layers * block_size * (num_kv_heads // tp) * head_dim * itemsize
