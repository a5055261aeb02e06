# check: Qwen3-0.6B
# words: expected 29360128 bytes|you gave 28
# why: the answer is in MiB
# passes ordinary: yes
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    return 2 * num_layers * block_size * max(1, num_kv_heads // tp) * head_dim * itemsize // 2**20
