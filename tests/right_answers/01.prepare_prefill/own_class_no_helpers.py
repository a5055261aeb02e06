from dataclasses import dataclass, field


@dataclass
class Packed:
    input_ids: list = field(default_factory=list)
    positions: list = field(default_factory=list)
    slot_mapping: list = field(default_factory=list)
    cu_seqlens_q: list = field(default_factory=lambda: [0])
    cu_seqlens_k: list = field(default_factory=lambda: [0])
    max_seqlen_q: int = 0
    max_seqlen_k: int = 0
    block_tables: list | None = None


def prepare_prefill(seqs, block_size):
    packed = Packed()
    for seq in seqs:
        position = seq.num_cached_tokens
        for _ in range(seq.num_scheduled_tokens):
            packed.input_ids.append(seq[position])
            packed.positions.append(position)
            if seq.block_table:
                block, offset = divmod(position, block_size)
                packed.slot_mapping.append(seq.block_table[block] * block_size + offset)
            position += 1
        packed.cu_seqlens_q.append(len(packed.input_ids))
        packed.cu_seqlens_k.append(packed.cu_seqlens_k[-1] + position)
        packed.max_seqlen_q = max(packed.max_seqlen_q, seq.num_scheduled_tokens)
        packed.max_seqlen_k = max(packed.max_seqlen_k, position)
    if any(seq.num_cached_tokens for seq in seqs):
        width = max(len(seq.block_table) for seq in seqs)
        packed.block_tables = [(seq.block_table + [-1] * width)[:width] for seq in seqs]
    return packed
