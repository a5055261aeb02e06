import math

import torch


def one_query(q, keys, values, scale):
    """Head by head, key by key, as the definition says, with a running maximum."""
    out = torch.zeros_like(q)
    for head in range(len(q)):
        kv_head = head // (len(q) // keys.shape[1])
        scores = [float(q[head] @ key[kv_head]) * scale for key in keys]
        top = max(scores)
        weights = [math.exp(score - top) for score in scores]
        for weight, value in zip(weights, values):
            out[head] += weight / sum(weights) * value[kv_head]
    return out


def attend(q, k, v, k_cache, v_cache, context, scale):
    out = torch.zeros_like(q)
    if not context.is_prefill:
        work = [(i, i, i, n - 1, n) for i, n in enumerate(context.context_lens.tolist()) if n]
    else:
        work = []
        starts_q, starts_k = context.cu_seqlens_q.tolist(), context.cu_seqlens_k.tolist()
        for i, (first, end) in enumerate(zip(starts_q, starts_q[1:])):
            total = starts_k[i + 1] - starts_k[i]
            for row in range(first, end):
                work.append((i, first, row, total - (end - first) + row - first, total))
    for i, first, row, position, _ in work:
        if context.block_tables is None:
            keys, values = k[first : row + 1], v[first : row + 1]
        else:
            size = k_cache.shape[1]
            places = [(int(context.block_tables[i, p // size]), p % size) for p in range(position + 1)]
            keys = torch.stack([k_cache[place] for place in places])
            values = torch.stack([v_cache[place] for place in places])
        out[row] = one_query(q[row], keys, values, scale)
    return out
