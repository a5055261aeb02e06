# check: decode, several
# words: row 1
# why: the first table for every sequence
# passes ordinary: no
import torch


def attend(q, k, v, k_cache, v_cache, context, scale):
    out = torch.zeros_like(q)
    groups = q.shape[1] // k.shape[1]
    if context.is_prefill:
        starts_q, starts_k = context.cu_seqlens_q.tolist(), context.cu_seqlens_k.tolist()
        pieces = [
            (slice(starts_q[i], starts_q[i + 1]), int(starts_k[i + 1] - starts_k[i])) for i in range(len(starts_q) - 1)
        ]
    else:
        pieces = [(slice(i, i + 1), int(context.context_lens[i])) for i in range(len(q))]
    for i, (rows, m) in enumerate(pieces):
        if m == 0:
            continue
        n = len(q[rows])
        position = torch.arange(m)
        if context.block_tables is None:
            keys, values = k[rows], v[rows]
        else:
            size = k_cache.shape[1]
            table = context.block_tables[0].long()
            slots = table[position // size] * size + position % size
            keys, values = k_cache.flatten(0, 1)[slots], v_cache.flatten(0, 1)[slots]
        keys = keys.repeat_interleave(groups, dim=1)
        values = values.repeat_interleave(groups, dim=1)
        scores = torch.einsum("nhd,mhd->hnm", q[rows], keys) * scale
        scores.masked_fill_(position > m - n + torch.arange(n)[:, None], -torch.inf)
        out[rows] = torch.einsum("hnm,mhd->nhd", scores.softmax(-1), values)
    return out
