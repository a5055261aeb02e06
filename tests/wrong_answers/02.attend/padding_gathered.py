# check: decode, padded rows
# words: IndexError|out of
# why: gathers every row of the tables, padding too
# passes ordinary: yes
import torch
import torch.nn.functional as F


def attend(q, k, v, k_cache, v_cache, context, scale):
    groups = q.shape[1] // k.shape[1]
    if not context.is_prefill:
        tables = context.block_tables.long()
        keys = k_cache[tables].flatten(1, 2).nan_to_num().repeat_interleave(groups, 2)
        values = v_cache[tables].flatten(1, 2).nan_to_num().repeat_interleave(groups, 2)
        seen = torch.arange(keys.shape[1]) < context.context_lens[:, None]
        scores = torch.einsum("bhd,bmhd->bhm", q, keys) * scale
        scores = scores.masked_fill(~seen[:, None], -torch.inf)
        return torch.einsum("bhm,bmhd->bhd", scores.softmax(-1), values)
    out = torch.empty_like(q)
    starts_q, starts_k = context.cu_seqlens_q.tolist(), context.cu_seqlens_k.tolist()
    for i in range(len(starts_q) - 1):
        rows, m = slice(starts_q[i], starts_q[i + 1]), starts_k[i + 1] - starts_k[i]
        keys, values = k[rows], v[rows]
        if context.block_tables is not None:
            blocks = context.block_tables[i, : -(-m // k_cache.shape[1])].long()
            keys, values = (c[blocks].flatten(0, 1)[:m] for c in (k_cache, v_cache))
        n = starts_q[i + 1] - starts_q[i]
        mask = torch.arange(m) <= m - n + torch.arange(n)[:, None]
        q_i, k_i, v_i = (x.transpose(0, 1) for x in (q[rows], keys, values))
        k_i, v_i = k_i.repeat_interleave(groups, 0), v_i.repeat_interleave(groups, 0)
        result = F.scaled_dot_product_attention(q_i, k_i, v_i, attn_mask=mask, scale=scale)
        out[rows] = result.transpose(0, 1)
    return out
