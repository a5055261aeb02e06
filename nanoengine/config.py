"""Every knob of the engine, checked once at the door."""

import difflib
import os
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from nanoengine.errors import ConfigError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEVICES = ("auto", "cpu", "cuda")
_LIMITS = {"max_num_seqs": 1 << 16, "cpu_kvcache_bytes": 1 << 62}
BACKENDS = ("auto", "reference", "native", "triton", "flash_attn")
FLASH_ATTN_BLOCK = 256  # flash-attn reads paged KV in blocks of a multiple of this many tokens
LOAD_FORMATS = ("auto", "dummy")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Options of `LLM(...)`; None and "auto" are decided when the model is known.

    model: None (the classroom model), "smollm2", a folder, or a hub id.
    device: "auto" takes a CUDA GPU when there is one.
    load_format: "auto" reads the model's safetensors; "dummy" draws random weights, for a benchmark
        of a shape: the folder then needs a config.json alone.
    dummy_seed: of random weights.
    dtype: of weights, activations and KV cache; "auto": float32 on a CPU, the model's on a GPU.
    attention_backend: "auto" is decided by the device; `nanoengine doctor` says which and why.
        "reference" is plain torch, "native" the C kernels of a CPU; the others need a GPU.
    kvcache_block_size: tokens a KV block, a power of two from 4 (flash_attn: from 256); None: 16
        (CPU) or 256 (GPU).
    num_kvcache_blocks: size of the KV pool; None: whatever the memory below allows.
    gpu_memory_utilization: the part of the whole card that weights, activations and KV may fill.
    gpu_reserve_bytes: kept free for graphs and sampling when the pool is carved.
    cpu_kvcache_bytes: memory for the KV pool on a CPU.
    max_num_seqs: sequences that run at once. Every one of them takes at least one token of every
        step, so at most max_num_batched_tokens of them run at once, too.
    max_num_batched_tokens: tokens of one step, prompt chunks and decode rows together.
    max_prefill_tokens: prompt tokens a step may take while others decode (None: the budget);
        a smaller number keeps the gaps between a running request's tokens short.
    max_model_len: prompt and output tokens of one sequence; None: what the model was made for.
    tensor_parallel_size: GPUs (or CPU processes) that share each layer.
    worker_timeout: seconds that one of them waits for another inside a step before it is an error.
    disable_custom_all_reduce: let NCCL do all sums over GPUs; else one kernel of ours does the
        small ones of 2, 4 or 8 GPUs that NVLink joins (not under torchrun).
    enforce_eager: True: never use graphs. False: graphs for decode; on a CPU their strict double,
        which is slower and made for tests and lessons. None: graphs on a GPU, eager on a CPU.
    graph_max_batch, graph_bucket_step: graphs for batches 1, 2, 4, 8, then every step up to max.
    overlap: launch step N+1 before reading step N's tokens; the tokens are the same either way.
    enable_prefix_caching: reuse KV blocks of equal prompt beginnings.

    Raises ConfigError, naming the option, its value and its limit.
    """

    model: str | os.PathLike[str] | None = None
    device: str = "auto"
    load_format: str = "auto"
    dummy_seed: int = 0
    dtype: str = "auto"
    attention_backend: str = "auto"
    kvcache_block_size: int | None = None
    num_kvcache_blocks: int | None = None
    gpu_memory_utilization: float = 0.9
    gpu_reserve_bytes: int = 1 << 30
    cpu_kvcache_bytes: int = 1 << 30
    max_num_seqs: int = 512
    max_num_batched_tokens: int = 16384
    max_prefill_tokens: int | None = None
    max_model_len: int | None = None
    tensor_parallel_size: int = 1
    worker_timeout: float = 7.0
    disable_custom_all_reduce: bool = False
    enforce_eager: bool | None = None
    graph_max_batch: int = 512
    graph_bucket_step: int = 16
    overlap: bool = True
    enable_prefix_caching: bool = True

    @classmethod
    def from_kwargs(cls, **options: Any) -> "EngineConfig":
        """A config from keyword options; an unknown one is refused with its likely spelling."""
        known = [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                raise ConfigError(unknown_option(name, options[name], known))
        return cls(**options)

    def __post_init__(self) -> None:
        _choice("device", self.device, DEVICES)
        _choice("load_format", self.load_format, LOAD_FORMATS)
        _choice("dtype", self.dtype, ("auto", *DTYPES))
        _choice("attention_backend", self.attention_backend, BACKENDS)
        for name in (
            "max_num_seqs",
            "max_num_batched_tokens",
            "tensor_parallel_size",
            "graph_max_batch",
            "graph_bucket_step",
            "cpu_kvcache_bytes",
        ):
            _positive(name, getattr(self, name))
        for name in ("num_kvcache_blocks", "max_prefill_tokens", "max_model_len"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        for name in ("overlap", "enable_prefix_caching", "disable_custom_all_reduce"):
            _boolean(name, getattr(self, name))
        if self.enforce_eager is not None:
            _boolean("enforce_eager", self.enforce_eager)
        self._check_block_size()
        _number("gpu_memory_utilization", self.gpu_memory_utilization, "for example 0.9")
        _number("gpu_reserve_bytes", self.gpu_reserve_bytes, "use 0 or more")
        _number("worker_timeout", self.worker_timeout, "use seconds")
        if not isinstance(self.dummy_seed, int) or isinstance(self.dummy_seed, bool):
            raise ConfigError(f"dummy_seed={self.dummy_seed!r} is not an integer: use 0")
        if not 0.0 < self.gpu_memory_utilization <= 1.0:
            raise ConfigError(
                f"gpu_memory_utilization={self.gpu_memory_utilization} is outside (0, 1]: "
                "give the part of the card that the engine may fill, for example 0.9"
            )
        if self.gpu_reserve_bytes < 0:
            raise ConfigError(
                f"gpu_reserve_bytes={self.gpu_reserve_bytes} is negative: use 0 or more"
            )
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError(
                "device='cuda', but torch sees no CUDA device: use device='cpu', or install a "
                "CUDA build of torch"
            )
        if not self.worker_timeout > 0:
            raise ConfigError(f"worker_timeout={self.worker_timeout} is not positive: use seconds")

    def _check_block_size(self) -> None:
        size = self.kvcache_block_size
        if size is None:
            return
        _positive("kvcache_block_size", size)
        if size < 4 or size & (size - 1):
            raise ConfigError(
                f"kvcache_block_size={size} is not a power of two of at least 4: "
                "use 4 for lessons, 16 on a CPU, 256 on a GPU"
            )
        if self.attention_backend == "flash_attn" and size % FLASH_ATTN_BLOCK:
            raise ConfigError(
                f"kvcache_block_size={size} is not a multiple of {FLASH_ATTN_BLOCK}, which "
                "attention_backend='flash_attn' needs: use 256, or another backend"
            )

    def resolve_device(self) -> torch.device:
        """The device that "auto" stands for on this machine."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def resolve_dtype(self, model_dtype: torch.dtype, device: torch.device) -> torch.dtype:
        """The dtype that "auto" stands for: float32 on a CPU, the model's own on a GPU."""
        if self.dtype != "auto":
            return DTYPES[self.dtype]
        return torch.float32 if device.type == "cpu" else model_dtype

    def use_graphs(self, device: torch.device) -> bool:
        """Whether decode steps replay graphs (on a CPU: their strict double)."""
        if self.enforce_eager is None:
            return device.type == "cuda"
        return not self.enforce_eager

    def block_size(self, device: torch.device) -> int:
        """Tokens a KV block on this device."""
        return self.kvcache_block_size or (16 if device.type == "cpu" else 256)

    def to_dict(self) -> dict[str, Any]:
        """The options as plain values, for a benchmark's JSON."""
        values = asdict(self)
        values["model"] = None if self.model is None else str(self.model)
        return values


def unknown_option(name: str, value: object, known: list[str]) -> str:
    """What to say to an option that does not exist: its likely spelling, or what there is."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    return f"unknown option {name}={value!r}: {hint}"


def _number(name: str, value: object, remedy: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"{name}={value!r} is not a number: {remedy}")


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r} is not known: use one of {', '.join(allowed)}")


def _positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name}={value!r} is not a positive integer: use 1 or more")
    limit = _LIMITS.get(name, 2**31 - 1)  # tokens and blocks are counted in int32
    if value > limit:
        raise ConfigError(f"{name}={value} is beyond {limit}: use a smaller number")


def _boolean(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r} is not a bool: use True or False")
