"""Tensor-parallel shards: each rank's layer, put together by hand, is the whole layer."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nanoengine.distributed.group import TPGroup
from nanoengine.errors import ConfigError
from nanoengine.layers.embed_head import ParallelLMHead, VocabParallelEmbedding
from nanoengine.layers.linear import (
    ColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
    shard_slice,
)

RANKS = [1, 2, 4]


class Disk:
    """A whole tensor "on disk" that counts what is read of it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.read = tensor, 0

    def get_shape(self) -> list[int]:
        """Sizes."""
        return list(self.tensor.shape)

    def __getitem__(self, index: Any) -> torch.Tensor:
        part = self.tensor[index]
        self.read += part.numel()
        return part


class ByHand(TPGroup):
    """A rank without processes: what would be summed or gathered is collected instead."""

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's addend."""
        return x

    def gather_last(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's columns."""
        return x


def groups(size: int) -> list[ByHand]:
    """One group a rank."""
    return [ByHand(rank, size) for rank in range(size)]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def load(layer: nn.Module, name: str, tensor: torch.Tensor, part: int = 0) -> int:
    """Load one tensor as the weight loader does; returns how many numbers were read."""
    disk = Disk(tensor)
    assert layer.source_shape(name, part) == disk.get_shape()
    layer.load(name, disk, part)
    return disk.read


def test_shard_slice() -> None:
    assert shard_slice(12, 1, 4) == slice(3, 6)
    assert [shard_slice(6, r, 2) for r in (0, 1)] == [slice(0, 3), slice(3, 6)]
    with pytest.raises(ConfigError, match="heads=6 cannot be divided by tensor_parallel_size=4"):
        shard_slice(6, 0, 4, "heads")


@pytest.mark.parametrize("size", RANKS)
@pytest.mark.parametrize("bias", [False, True])
def test_column_parallel(size: int, bias: bool) -> None:
    """Gate and up are each cut, so a rank's gate meets its own up."""
    gate, up, x = random(8, 5, seed=1), random(8, 5, seed=2), random(3, 5, seed=3)
    gate_bias, up_bias = random(8, seed=4), random(8, seed=5)
    parts = []
    for group in groups(size):
        layer = ColumnParallelLinear(5, [8, 8], bias, group)
        read = load(layer, "weight", gate, 0) + load(layer, "weight", up, 1)
        assert read == layer.weight.numel() == 2 * 8 * 5 // size  # only this rank's rows
        if bias:
            load(layer, "bias", gate_bias, 0)
            load(layer, "bias", up_bias, 1)
        parts.append(layer(x).chunk(2, dim=-1))
    assert torch.allclose(torch.cat([g for g, _ in parts], -1),
                          F.linear(x, gate, gate_bias if bias else None), atol=1e-6)  # fmt: skip
    assert torch.allclose(torch.cat([u for _, u in parts], -1),
                          F.linear(x, up, up_bias if bias else None), atol=1e-6)  # fmt: skip


@pytest.mark.parametrize("size", RANKS)
@pytest.mark.parametrize("bias", [False, True])
def test_row_parallel_adds_its_bias_once(size: int, bias: bool) -> None:
    weight, b, x = random(6, 8, seed=1), random(6, seed=2), random(3, 8, seed=3)
    total = torch.zeros(3, 6)
    for group in groups(size):
        layer = RowParallelLinear(8, 6, bias, group)
        assert load(layer, "weight", weight) == 6 * 8 // size
        if bias:
            load(layer, "bias", b)
        total += layer(x[:, shard_slice(8, group.rank, size)])
    assert torch.allclose(total, F.linear(x, weight, b if bias else None), atol=1e-5)


@pytest.mark.parametrize(("size", "kv_heads"), [(1, 2), (2, 2), (2, 4), (4, 2), (4, 1), (8, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_qkv_and_replicated_kv_heads(size: int, kv_heads: int, bias: bool) -> None:
    """Every query head finds its own kv head on its own rank."""
    heads, dim, hidden = 8, 3, 5
    q, k, v = (random(n * dim, hidden, seed=n) for n in (heads, kv_heads, kv_heads + 20)[:3])
    v = random(kv_heads * dim, hidden, seed=9)
    biases = [random(w.shape[0], seed=30 + i) for i, w in enumerate((q, k, v))]
    x = random(2, hidden, seed=7)
    whole = [F.linear(x, w, b if bias else None).view(2, -1, dim)
             for w, b in zip((q, k, v), biases, strict=True)]  # fmt: skip
    for group in groups(size):
        layer = QKVParallelLinear(hidden, heads, kv_heads, dim, bias, group)
        for part, (w, b) in enumerate(zip((q, k, v), biases, strict=True)):
            load(layer, "weight", w, part)
            if bias:
                load(layer, "bias", b, part)
        assert (layer.num_heads, layer.num_kv_heads) == (heads // size, max(1, kv_heads // size))
        out = layer(x).view(2, -1, dim)
        mine = out.split([layer.num_heads, layer.num_kv_heads, layer.num_kv_heads], 1)
        per_kv = layer.num_heads // layer.num_kv_heads
        for local in range(layer.num_heads):
            head = group.rank * layer.num_heads + local
            kv = head // (heads // kv_heads)
            assert torch.allclose(mine[0][:, local], whole[0][:, head], atol=1e-6)
            for ours, theirs in zip(mine[1:], whole[1:], strict=True):
                assert torch.allclose(ours[:, local // per_kv], theirs[:, kv], atol=1e-6)


@pytest.mark.parametrize(
    ("size", "heads", "kv_heads", "named"),
    [(4, 6, 2, "num_attention_heads=6"), (4, 12, 3, "num_key_value_heads=3"),
     (3, 6, 2, "num_key_value_heads=2"), (2, 6, 3, "num_key_value_heads=3")],
)  # fmt: skip
def test_heads_that_cannot_be_divided_are_named(
    size: int, heads: int, kv_heads: int, named: str
) -> None:
    with pytest.raises(ConfigError, match=f"{named}.*tensor_parallel_size={size}"):
        QKVParallelLinear(4, heads, kv_heads, 2, False, ByHand(0, size))


@pytest.mark.parametrize("size", RANKS)
@pytest.mark.parametrize("vocab", [16, 17, 13])
def test_embedding_and_head_of_any_vocabulary(size: int, vocab: int) -> None:
    """The last rank's shard is padded; padding adds nothing and is cut off."""
    table = random(vocab, 6, seed=1)
    ids = torch.tensor([0, vocab - 1, 5, vocab // 2, 5])
    hidden = random(3, 6, seed=2)
    embedded, columns, read = torch.zeros(len(ids), 6), [], 0
    for group in groups(size):
        embedding = VocabParallelEmbedding(vocab, 6, group)
        read += load(embedding, "weight", table)
        part = embedding(ids)
        assert torch.isfinite(part).all()
        embedded += part
        head = ParallelLMHead(vocab, 6, group)
        load(head, "weight", table)
        columns.append(F.linear(hidden, head.weight))
    assert read == vocab * 6  # every row once
    assert torch.equal(embedded, table[ids])
    logits = torch.cat(columns, -1)
    assert torch.allclose(logits[:, :vocab], hidden @ table.T, atol=1e-6)
    assert not logits[:, vocab:].any()
    if size == 1:
        assert ParallelLMHead(vocab, 6).weight.shape == (vocab, 6)


def test_the_head_cuts_the_padding_off() -> None:
    class Joined(TPGroup):
        def gather_last(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, x], -1)

    head = ParallelLMHead(5, 4, Joined(0, 2))
    head.weight.data.zero_()
    assert head(torch.ones(2, 4)).shape == (2, 5)


def test_one_rank_starts_no_process_group() -> None:
    group = TPGroup()
    x = torch.ones(2)
    assert group.all_reduce(x) is x
    assert group.gather_last(x) is x
    assert not torch.distributed.is_initialized()
