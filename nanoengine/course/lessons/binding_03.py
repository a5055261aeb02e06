"""Lesson 03's contract for binding: which slice of the one tensor each layer got."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, MutatedArgument, show, wrong_kind

if TYPE_CHECKING:
    import torch

    from nanoengine.viz.style import Picture

Args = tuple[Any, ...]
_NAMES = ("K", "V")


def binding_cases() -> list[Case]:
    """Models of several depths; a dtype in which a conversion would copy; a cache that differs.

    args: layers of the model, layers of the cache, blocks, block_size, kv heads, head_dim, dtype.
    """
    hand: list[tuple[str, Args]] = [
        ("three layers", (3, 3, 5, 4, 2, 8, "float32")),
        ("one layer", (1, 1, 3, 4, 1, 8, "float32")),
        ("twelve layers", (12, 12, 2, 4, 3, 8, "float32")),
        ("bfloat16", (2, 2, 6, 8, 2, 4, "bfloat16")),
        ("a cache with a layer too many", (2, 3, 5, 4, 2, 8, "float32")),
        ("a cache with a layer too few", (3, 2, 5, 4, 2, 8, "float32")),
    ]
    return [Case(check, _situation(check, args), args) for check, args in hand]


def _situation(check: str, args: Args) -> str:
    return f"{check} (kv_cache [2, {', '.join(map(str, args[1:6]))}], {args[6]})"


def binding_arguments(args: Args) -> Args:
    """A model with that many Attention modules, deep inside it, and a cache full of zeros."""
    import torch
    from torch import nn

    from nanoengine.attention import reference
    from nanoengine.layers.attention import Attention

    depth, layers, *shape, dtype = args
    blocks = [nn.ModuleDict({"attn": Attention(1.0, reference)}) for _ in range(depth)]
    model = nn.ModuleDict({"embed": nn.Identity(), "layers": nn.ModuleList(blocks)})
    return model, torch.zeros(2, layers, *shape, dtype=getattr(torch, dtype))


def observe_binding(function: Callable[..., Any], args: Args) -> Any:
    """[[K, V] of each layer] in words, "K of layer 0"; or {"raised": type, "message": text}.

    Raises MutatedArgument when the numbers in the cache changed.
    """
    from nanoengine.layers.attention import Attention

    model, kv_cache = args
    try:
        function(model, kv_cache)
    except (ValueError, IndexError, AssertionError) as error:
        return {"raised": type(error).__name__, "message": str(error)[:200]}
    if kv_cache.any():
        raise MutatedArgument("argument 2, kv_cache: its numbers were changed, binding only looks")
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    return [[_name(t, kv_cache) for t in (layer.k_cache, layer.v_cache)] for layer in layers]


def _name(tensor: Any, kv_cache: "torch.Tensor") -> str:
    """Which slice a bound tensor is: by memory and shape, so that a copy is not one."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        return f"a {type(tensor).__name__}, no tensor"
    if tensor.numel() == 0:
        return "not bound"
    for kv, name in enumerate(_NAMES):
        for layer in range(kv_cache.shape[1]):
            part = kv_cache[kv, layer]
            if tensor.data_ptr() != part.data_ptr():
                continue
            if tensor.shape == part.shape and tensor.stride() == part.stride():
                return f"{name} of layer {layer}"
    start, end = kv_cache.data_ptr(), kv_cache.data_ptr() + kv_cache.nbytes
    if not start <= tensor.data_ptr() < end:
        return "a copy"
    return f"a view of shape {list(tensor.shape)}"


def compare_binding(case: Case, expected: Any, got: Any) -> Difference | None:
    """Layer by layer, K then V; the first that is another slice."""
    raised = got.get("raised") if isinstance(got, dict) else None
    if isinstance(expected, dict):
        if raised == expected["raised"]:
            return None
        said = f"raised {raised}" if raised else "said nothing"
        return Difference(
            f"the model has {case.args[0]} layers, so cache and model do not belong together: "
            f"expected ValueError, your function {said}"
        )
    if raised:
        return Difference(
            f"the cache fits the model, but you raised {raised} ({got['message']}); dim 0 of "
            "kv_cache is K or V, dim 1 the layer"
        )
    wrong = wrong_kind(got, "bound layers")
    if wrong:
        return wrong
    for layer, (wanted, given) in enumerate(zip(expected, got, strict=True)):
        for name, right, mine in zip(_NAMES, wanted, given, strict=True):
            if mine != right:
                return Difference(_words(layer, name, right, mine))
    return None


def _words(layer: int, name: str, right: str, mine: str) -> str:
    attribute = f"layer {layer}'s {name.lower()}_cache"
    if mine == "not bound":
        return f"{attribute} is still empty: set the attribute of the module itself"
    if mine == "a copy":
        return (
            f"{attribute} is a copy: the memory is taken twice and what is written there is not in "
            "kv_cache; a slice kv_cache[...] is a view"
        )
    kv = _NAMES.index(name)
    hint = f"kv_cache[{kv}, {layer}]: dim 0 is K or V, dim 1 the layer"
    return f"{attribute} should be {right}, it is {show(mine)[1:-1]}; that is {hint}"


def draw_binding(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The tensor's slices, and which of them each layer got."""
    from nanoengine.viz.memory import cache_binding

    if not isinstance(expected, list) or not isinstance(got, list):
        return None
    return cache_binding(args[1:6], got)
