# check: more ranks than kv heads
# words: you gave 0|less than one whole kv head
# why: 8 heads on 16 ranks: nothing is left
# passes ordinary: yes
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    return 2 * num_layers * block_size * (num_kv_heads // tp) * head_dim * itemsize
