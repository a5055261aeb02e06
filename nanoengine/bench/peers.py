"""The engines that a benchmark runs: ours and its peers, thin adapters over public APIs."""

import gc
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch

from nanoengine.bench import BenchError
from nanoengine.bench.model import Model, load_transformers, with_weight_files
from nanoengine.bench.workload import Workload
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams


class Side(Protocol):
    """An engine that is measured."""

    name: str

    def run(self, requests: Workload, temperature: float) -> list[list[int]]:
        """Serve all requests at once; each one's output tokens, no end-of-text obeyed."""
        ...

    def close(self) -> None:
        """Free the memory of model and cache."""
        ...


class NanoengineSide:
    """This engine."""

    name = "nanoengine"

    def __init__(self, model: Model, options: dict[str, Any]) -> None:
        self.llm = LLM(
            model.folder,
            **{
                "device": model.device.type,
                "dtype": model.dtype,
                "max_model_len": model.max_model_len,
                **model.load_options,
                **options,
            },
        )

    def run(self, requests: Workload, temperature: float) -> list[list[int]]:
        """Serve all requests at once."""
        params = [
            SamplingParams(temperature=temperature, max_tokens=count, ignore_eos=True)
            for _, count in requests
        ]
        prompts = [prompt for prompt, _ in requests]
        return [out.token_ids for out in self.llm.generate(prompts, params, use_tqdm=False)]

    def close(self) -> None:
        """Free the memory of model and cache."""
        self.llm.close()
        _free_memory()


class TransformersSide:
    """transformers' `generate` on one left-padded batch, with SDPA attention and a KV cache.

    A static batch runs until its longest request ends; only the tokens asked for count.
    """

    name = "transformers"

    def __init__(self, model: Model, options: dict[str, Any]) -> None:
        self._hf = importlib.import_module("transformers")
        self.device = model.device
        self.model = load_transformers(model)

    @torch.inference_mode()
    def run(self, requests: Workload, temperature: float) -> list[list[int]]:
        """One `generate` call; rows are cut to their requests' lengths."""
        width = max(len(prompt) for prompt, _ in requests)
        longest = max(count for _, count in requests)
        rows = [[0] * (width - len(prompt)) + prompt for prompt, _ in requests]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt, _ in requests]
        sampling: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        out = self.model.generate(
            input_ids=torch.tensor(rows, device=self.device),
            attention_mask=torch.tensor(mask, device=self.device),
            generation_config=self._hf.GenerationConfig(
                max_new_tokens=longest, pad_token_id=0, use_cache=True, **sampling
            ),
        )
        tokens: list[list[int]] = out[:, width:].tolist()
        return [row[:count] for row, (_, count) in zip(tokens, requests, strict=True)]

    def close(self) -> None:
        """Free the model's memory."""
        del self.model
        _free_memory()


class VllmSide:
    """vLLM's offline `LLM`."""

    name = "vllm"

    def __init__(self, model: Model, options: dict[str, Any]) -> None:
        self._vllm = importlib.import_module("vllm")
        self.llm = self._vllm.LLM(
            model=str(with_weight_files(model)),
            dtype=model.dtype,
            max_model_len=model.max_model_len,
            tensor_parallel_size=options.get("tensor_parallel_size", 1),
            skip_tokenizer_init=True,
        )

    def run(self, requests: Workload, temperature: float) -> list[list[int]]:
        """One `generate` call."""
        params = [
            self._vllm.SamplingParams(
                temperature=temperature, max_tokens=count, ignore_eos=True, detokenize=False
            )
            for _, count in requests
        ]
        prompts = [{"prompt_token_ids": prompt} for prompt, _ in requests]
        outs = self.llm.generate(prompts, params, use_tqdm=False)
        return [list(out.outputs[0].token_ids) for out in outs]

    def close(self) -> None:
        """Let go of the engine; its worker process ends with it."""
        del self.llm
        _free_memory()


class NanoVllmSide:
    """nano-vllm's `LLM`; it needs a folder with a tokenizer, and refuses temperature 0."""

    name = "nano-vllm"
    _LOWEST = 1e-3  # as good as greedy

    def __init__(self, model: Model, options: dict[str, Any]) -> None:
        self._nanovllm = importlib.import_module("nanovllm")
        self.llm = self._nanovllm.LLM(
            str(with_weight_files(model)),
            enforce_eager=False,
            max_model_len=model.max_model_len,
            tensor_parallel_size=options.get("tensor_parallel_size", 1),
        )

    def run(self, requests: Workload, temperature: float) -> list[list[int]]:
        """One `generate` call."""
        params = [
            self._nanovllm.SamplingParams(
                temperature=max(temperature, self._LOWEST), max_tokens=count, ignore_eos=True
            )
            for _, count in requests
        ]
        outs = self.llm.generate([prompt for prompt, _ in requests], params, use_tqdm=False)
        return [list(out["token_ids"]) for out in outs]

    def close(self) -> None:
        """End its processes."""
        self.llm.exit()
        del self.llm
        _free_memory()


class Peer(NamedTuple):
    """A peer's adapter, and the module that must be installed for it."""

    make: Callable[[Model, dict[str, Any]], Side]
    module: str
    package: str


PEERS: dict[str, Peer] = {
    "transformers": Peer(TransformersSide, "transformers", "transformers"),
    "vllm": Peer(VllmSide, "vllm", "vllm"),
    "nano-vllm": Peer(NanoVllmSide, "nanovllm", "nano-vllm"),
}


def require_peer(name: str) -> Peer:
    """The peer, if it can be run here. Raises BenchError naming what to install."""
    peer = PEERS[name]
    if importlib.util.find_spec(peer.module) is None:
        here = [n for n, p in PEERS.items() if importlib.util.find_spec(p.module) is not None]
        raise BenchError(
            f"peer {name!r} is not installed: `pip install {peer.package}`, or use one that is: "
            f"{', '.join(here)}"
        )
    return peer


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
