"""The shipped model says the same in transformers and in the engine; the wheel contains it."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from nanoengine import LLM, SamplingParams
from nanoengine.classroom import ClassroomModelError, classroom_folder
from nanoengine.classroom.folder import MANIFEST, MODEL_FILES
from nanoengine.errors import NanoengineError

ROOT = Path(__file__).parents[2]
NEW_TOKENS = 24
CHAT = ("Hello!", "What do you like to eat?", "I am really tired today.", "Tell me a story.")
TEXT = ("Once upon a time, there was a", "The old man opened the door and", "It was", "She said,")


def test_same_greedy_tokens_as_transformers() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(classroom_folder())
    model = AutoModelForCausalLM.from_pretrained(classroom_folder(), dtype=torch.float32)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": line}], add_generation_prompt=True, return_dict=False
        )
        for line in CHAT
    ]
    prompts += [tokenizer(text).input_ids for text in TEXT]
    expected = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS
        )
        expected.append(out[0, len(prompt) :].tolist())
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS)
    with LLM(dtype="float32", device="cpu") as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [list(out.token_ids) for out in outputs] == expected


def test_a_damaged_model_is_one_of_our_errors() -> None:
    assert issubclass(ClassroomModelError, NanoengineError)


@pytest.mark.slow
def test_wheel_contains_the_model(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "nanoengine", "pyproject.toml", "README.md", "LICENSE"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout: which files are tracked is unknown")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            target = tmp_path / "src" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--wheel-dir", str(tmp_path)], cwd=tmp_path / "src", check=True,
        capture_output=True, timeout=300,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("nanoengine-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (*MODEL_FILES, MANIFEST, "MODEL_CARD.md", "quality.json", "loss_curve.json"):
        assert f"nanoengine/classroom/model/{name}" in names
    for name in ("prompts.json", "smalltalk.json"):
        assert f"nanoengine/classroom/{name}" in names
    assert "nanoengine/kernels/native/kernels.c" in names
