# check: more ranks than kv heads
# words: less than one whole kv head
# why: the product is divided, so that a rank gets half a head
# passes ordinary: yes
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    return 2 * num_layers * block_size * num_kv_heads * head_dim * itemsize // tp
