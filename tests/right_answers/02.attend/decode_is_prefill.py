import torch
import torch.nn.functional as F


def attend(q, k, v, k_cache, v_cache, context, scale):
    """Decode as prefill with one query a sequence; keys of a fresh batch by a packed mask."""
    groups = q.shape[1] // k.shape[1]
    if context.is_prefill and context.block_tables is None:
        owner = torch.bucketize(torch.arange(len(q)), context.cu_seqlens_q[1:].long(), right=True)
        mask = (owner[:, None] == owner[None]) & torch.ones(len(q), len(q), dtype=torch.bool).tril()
        return sdpa(q, k, v, mask, scale, groups)
    if context.is_prefill:
        lens_q, lens_k = context.cu_seqlens_q.diff(), context.cu_seqlens_k.diff()
    else:
        lens_q, lens_k = torch.ones_like(context.context_lens), context.context_lens
    size, out, row = k_cache.shape[1], [], 0
    for n, m, table in zip(lens_q.tolist(), lens_k.tolist(), context.block_tables):
        rows = q[row : row + n]
        row += n
        if m == 0:
            out.append(rows * 0)
            continue
        blocks = table[: (m + size - 1) // size].long()
        keys, values = (cache[blocks].flatten(0, 1)[:m] for cache in (k_cache, v_cache))
        out.append(sdpa(rows, keys, values, torch.ones(n, m, dtype=torch.bool).tril(m - n), scale, groups))
    return torch.cat(out)


def sdpa(q, k, v, mask, scale, groups):
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(0, 1)
