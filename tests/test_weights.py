"""The loader: every weight once, none missed, none left over, and little memory beside them."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import Oracle, random_prompts

from nanoengine import SamplingParams
from nanoengine.errors import WeightsError
from nanoengine.llm import LLM
from nanoengine.weights import build_model

FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(checkpoint: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a tiny Qwen3 that a test may spoil."""
    return Path(shutil.copytree(checkpoint("qwen3"), tmp_path / "model"))


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Load the weights, change the dictionary, save it again."""
    tensors = load_file(folder / FILE)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / FILE)


def shard(folder: Path, count: int = 3) -> dict[str, str]:
    """Spread the weights over files with an index; returns its map."""
    tensors = load_file(folder / FILE)
    (folder / FILE).unlink()
    files = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    where = {name: files[i % count] for i, name in enumerate(sorted(tensors))}
    for file in files:
        save_file({n: t for n, t in tensors.items() if where[n] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return where


def tokens(folder: Path) -> list[int]:
    """A few greedy tokens."""
    with LLM(folder, device="cpu", num_kvcache_blocks=8, kvcache_block_size=4) as llm:
        params = SamplingParams(temperature=0, max_tokens=8)
        return llm.generate(random_prompts([7]), params, use_tqdm=False)[0].token_ids


def refused(folder: Path, match: str) -> str:
    """The message of the one clear error; the folder is named in it."""
    with pytest.raises(WeightsError, match=match) as error:
        LLM(folder, device="cpu", num_kvcache_blocks=8)
    assert str(folder) in str(error.value) or FILE in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("indexed", [True, False])
def test_shards_with_and_without_an_index(folder: Path, indexed: bool) -> None:
    want = tokens(folder)
    shard(folder)
    if not indexed:
        (folder / INDEX).unlink()
    assert tokens(folder) == want


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_dtypes_on_disk_are_converted(folder: Path, dtype: torch.dtype) -> None:
    rewrite(folder, lambda t: t.update({name: x.to(dtype) for name, x in t.items()}))
    prompt = random_prompts([7])[0]
    assert tokens(folder) == Oracle(folder).greedy(prompt, 8)


@pytest.mark.parametrize("kind", ["qwen3-tied", "qwen2"])
def test_a_tied_head_may_be_in_the_file_or_not(
    checkpoint: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    folder = Path(shutil.copytree(checkpoint(kind), tmp_path / "model"))
    assert "lm_head.weight" not in load_file(folder / FILE)
    want = tokens(folder)
    rewrite(folder, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    assert tokens(folder) == want


def test_every_missing_weight_is_noticed(folder: Path) -> None:
    names = sorted(load_file(folder / FILE))
    # one of each kind is enough: layers are alike
    for name in [n for n in names if ".1." not in n]:
        copy = Path(shutil.copytree(folder, folder.parent / name))
        rewrite(copy, lambda t, name=name: t.pop(name))  # type: ignore[misc]
        assert name in refused(copy, "1 missing weights")


def test_missing_and_unknown_names_are_listed_and_counted(folder: Path) -> None:
    rewrite(folder, lambda t: [t.pop(n) for n in list(t) if "layers.1" in n])
    assert "and 3 more" in refused(folder, "11 missing weights: model.layers.1")


def test_unknown_weights_are_refused(folder: Path) -> None:
    rewrite(folder, lambda t: t.update({"model.layers.0.mlp.gate_up_proj.weight": torch.ones(2)}))
    refused(folder, r"1 unknown weights: model\.layers\.0\.mlp\.gate_up_proj\.weight.*config.json")


def test_the_computed_table_of_older_llama_files_is_left_out(folder: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    rewrite(folder, lambda t: t.update({name: torch.ones(8)}))
    LLM(folder).close()


def test_biases_that_config_does_not_announce_are_refused(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    """An attention_bias lost from config.json must not load as a model without biases."""
    folder = Path(shutil.copytree(checkpoint("qwen3-bias"), tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_bias": False}))
    refused(folder, "8 unknown weights: .*_proj.bias")


@pytest.mark.parametrize(
    "name",
    ["model.embed_tokens.weight", "model.norm.weight", "model.layers.0.self_attn.k_proj.weight",
     "model.layers.1.mlp.down_proj.weight", "model.layers.0.self_attn.q_norm.weight"],
)  # fmt: skip
@pytest.mark.parametrize("change", ["longer", "transposed"])
def test_a_wrong_shape_is_named_with_both_shapes(folder: Path, name: str, change: str) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        old = tensors[name]
        tensors[name] = old[None] if old.ndim == 1 else old.T
        if change == "longer":
            tensors[name] = torch.cat([old, old])

    shape = list(load_file(folder / FILE)[name].shape)
    rewrite(folder, spoil)
    message = refused(folder, f"{name} has shape")
    assert str(shape) in message


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, -1])
def test_a_truncated_file_is_refused(folder: Path, keep: float) -> None:
    data = (folder / FILE).read_bytes()
    end = int(len(data) * keep) if isinstance(keep, float) else keep
    (folder / FILE).write_bytes(data[:end])
    refused(folder, "damaged or cut short.*fetch the model again")


def test_a_corrupt_header_is_refused(folder: Path) -> None:
    data = bytearray((folder / FILE).read_bytes())
    data[8:16] = b"\x00" * 8
    (folder / FILE).write_bytes(data)
    refused(folder, "damaged or cut short")


def test_a_folder_without_safetensors_says_what_to_do(folder: Path) -> None:
    (folder / FILE).rename(folder / "pytorch_model.bin")
    refused(folder, r"holds no \*\.safetensors: convert")


def test_index_errors(folder: Path) -> None:
    where = shard(folder)
    missing = sorted(set(where.values()))[1]
    (folder / missing).unlink()
    refused(folder, f"names '{missing}', which is no file")
    (folder / INDEX).write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        LLM(folder, device="cpu")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"x": "../model.safetensors"}}))
    refused(folder, "no file of this folder")


def test_a_weight_in_two_files_is_refused(folder: Path) -> None:
    shutil.copy(folder / FILE, folder / "other.safetensors")
    refused(folder, "is in both model.safetensors and other.safetensors")


def test_integer_weights_are_refused(folder: Path) -> None:
    """Quantised numbers without their scales would load, and be garbage."""
    rewrite(folder, lambda t: t.update({"model.norm.weight": torch.ones(32, dtype=torch.int8)}))
    refused(folder, "model.norm.weight.*(int8|I8)")


MEASURE = """
import sys, threading
import torch
from pathlib import Path
from nanoengine.config import EngineConfig
from nanoengine.engine.engine import LLMEngine

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024

torch.set_num_threads(1)
torch.zeros(10) @ torch.zeros(10)
config = EngineConfig(device="cpu", num_kvcache_blocks=4, max_num_seqs=4, max_num_batched_tokens=64)
LLMEngine(Path(sys.argv[2]), config)  # imports and first calls of everything, on a tiny model
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before = status("VmRSS")
engine = LLMEngine(Path(sys.argv[1]), config)
print(status("VmHWM") - before, sum(p.nbytes for p in engine.runner.model.parameters()))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc")
def test_loading_peaks_below_1_3_times_the_weights(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    """About 200 MB of weights in two shards, in a fresh process."""
    big = tmp_path / "big"
    shutil.copytree(checkpoint("qwen3"), big)
    config = json.loads((big / "config.json").read_text())
    sizes = {"vocab_size": 8192, "hidden_size": 1024, "intermediate_size": 4096}
    (big / "config.json").write_text(json.dumps(config | sizes))
    grown = {"embed_tokens": (8192, 1024), "lm_head": (8192, 1024), "down_proj": (1024, 4096),
             "gate_proj": (4096, 1024), "up_proj": (4096, 1024), "o_proj": (1024, 96),
             "q_proj": (96, 1024), "k_proj": (48, 1024), "v_proj": (48, 1024),
             "q_norm": (24,), "k_norm": (24,)}  # fmt: skip
    names = load_file(big / FILE)
    shapes = {n: next((s for key, s in grown.items() if key in n), (1024,)) for n in names}
    save_file({name: torch.zeros(shape) for name, shape in shapes.items()}, big / FILE)
    shard(big, 2)
    out = subprocess.run(
        [sys.executable, "-c", MEASURE, str(big), str(checkpoint("qwen3"))],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    peak, weights = map(int, out.stdout.split())
    assert weights > 150e6
    assert peak < 1.3 * weights


def test_a_fault_of_the_model_itself_is_not_called_a_lack_of_memory() -> None:
    class Faulty(torch.nn.Module):
        def __init__(self) -> None:
            raise RuntimeError("a slice that a student wrote")

    with pytest.raises(RuntimeError, match="a slice that a student wrote"):
        build_model(Faulty, torch.float32, torch.device("cpu"))
    assert torch.get_default_dtype() == torch.float32
