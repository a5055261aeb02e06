"""Every known fault has its tests, and those that no other file has are here."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import known_faults
import pytest
from fake_runner import expected_tokens, fake_engine
from known_faults import Fault

import nanoengine
from nanoengine import LLM, SamplingParams
from nanoengine.course import exercises
from nanoengine.engine.block_manager import BlockManager
from nanoengine.engine.sequence import Sequence

ROOT = Path(nanoengine.__file__).parent.parent
TESTS = Path(__file__).parents[1]
ENDLESS = 100


def functions() -> set[str]:
    """All tests, as "file::function"."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.add(f"{path.name}::{node.name}")
    return found


FUNCTIONS = functions()


@pytest.mark.parametrize(
    "fault", [*known_faults.ENGINE, *known_faults.COURSE], ids=lambda fault: fault.what[:60]
)
def test_every_known_fault_has_tests_that_exist(fault: Fault) -> None:
    assert fault.tests
    assert fault.threads
    missing = set(fault.tests) - FUNCTIONS
    assert not missing, f"{fault.what}: renamed or gone: {missing}"


# nano-vllm #30, #91, #150, #240: the report that a block is added one step too late
@pytest.mark.parametrize("prompt", range(1, 10))
def test_exactly_enough_blocks_never_preempt(tmp_path: Path, prompt: int) -> None:
    block = 4
    for total in range(prompt + 1, prompt + 9):
        blocks = -(-(total - 1) // block)  # the newest token needs no slot
        engine = fake_engine(tmp_path, num_blocks=blocks, block_size=block)
        params = SamplingParams(max_tokens=total - prompt, ignore_eos=True)
        output = engine.output(engine.add_request([1] * prompt, params))
        while engine.has_unfinished:
            engine.step()
            for seq in engine.scheduler.running:
                assert len(seq.block_table) <= blocks
        assert engine.scheduler.num_preemptions == 0
        assert output.token_ids == expected_tokens([1] * prompt, total, ignore_eos=True)


# nano-vllm #208: a long prompt in chunks, and another that begins like it
@pytest.mark.parametrize("overlap", [False, True])
def test_a_prefix_is_shared_only_once_it_is_computed(tmp_path: Path, overlap: bool) -> None:
    engine = fake_engine(tmp_path, max_num_batched_tokens=8, overlap=overlap)
    shared = [1, 2] * 8
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    first = engine.output(engine.add_request([*shared, *[3] * 8], params))
    second = engine.output(engine.add_request([*shared, 4, 4], params))
    while engine.has_unfinished:  # the simulated cache raises when an unwritten slot is read
        engine.step()
    assert second.num_reused_tokens <= len(shared)
    for output in (first, second):
        ids = output.prompt_token_ids
        assert output.token_ids == expected_tokens(ids, len(ids) + 4, ignore_eos=True)


# nano-vllm's can_allocate hashes the whole prompt at every attempt
def test_a_waiting_prompt_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    real = BlockManager.compute_hash

    def counted(parent: bytes, tokens: list[int]) -> bytes:
        nonlocal calls
        calls += 1
        return real(parent, tokens)

    monkeypatch.setattr(BlockManager, "compute_hash", staticmethod(counted))
    manager = BlockManager(40, 4)
    owner = Sequence("a", [1] * 100, SamplingParams(), 200)
    assert manager.allocate(owner)
    manager.hash_blocks(owner, 0, 100)
    waiting = Sequence("b", [1] * 100 + [2] * 100, SamplingParams(), 300)
    calls = 0
    for _ in range(ENDLESS):
        assert not manager.allocate(waiting)
    assert 0 < calls <= len(waiting) // 4


def test_a_given_pool_size_is_obeyed(
    checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM]
) -> None:
    for blocks in (1, 7, 100):
        llm = make_llm(checkpoint("qwen3"), num_kvcache_blocks=blocks)
        assert llm.engine.stats()["num_blocks"] == blocks
        assert llm.engine.runner.kv_cache.shape[2] == blocks


def test_no_special_token_in_the_text(text_model: Path, make_llm: Callable[..., LLM]) -> None:
    """The end of the text is among the tokens, and not in the text."""
    llm = make_llm(text_model)
    special = llm.engine.tokenizer.special_ids  # type: ignore[union-attr]
    seen = 0
    params = [SamplingParams(seed=i, max_tokens=60, temperature=2.0) for i in range(40)]
    for output in llm.generate(["hello"] * len(params), params, use_tqdm=False):
        assert "<|" not in output.text
        seen += bool(special & set(output.token_ids))
    assert seen > 3


# -- the course and its installation ---------------------------------------------------------


def test_nothing_is_compiled_by_torch() -> None:
    """torch.compile fails on Windows and compiles anew for new sizes: it is not used at all."""
    for path in (ROOT / "nanoengine").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert ast.unparse(node) not in ("torch.compile", "torch.jit.script"), path


@pytest.mark.parametrize("path", sorted((ROOT / "lessons").glob("*.ipynb")), ids=lambda p: p.stem)
def test_lessons_install_nothing(path: Path) -> None:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for line in "".join(cell["source"]).splitlines():
            if cell["cell_type"] == "code":
                assert not re.match(r"\s*(!|%pip|%conda|%sh|%%bash)", line), line
                assert "http://" not in line
                assert "https://" not in line


def test_importing_warns_of_nothing() -> None:
    code = "import nanoengine, nanoengine.course, nanoengine.cli"
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (out.returncode, out.stderr) == (0, "")


def test_extras_in_the_readme_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named: set[str] = set()
    for path in (ROOT / "README.md", *sorted((ROOT / "nanoengine").rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        for extras in re.findall(r"(?:nanoengine|\.)\[([\w,-]+)\]\"", text):
            named |= set(extras.split(","))
    assert named
    assert named <= project["optional-dependencies"].keys()


def test_answers_are_ignored_by_git() -> None:
    """A student's `git status` stays clean, so that nothing is pushed by mistake."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "lessons/work/" in ignored


@pytest.mark.parametrize("name", sorted(exercises))
def test_no_two_cases_of_an_exercise_are_equal(name: str) -> None:
    """Each case shows something that the others do not (CS336 A1 #4 tests one tensor twice)."""
    cases = [repr(case.args) for case in exercises[name].cases()]
    assert len(set(cases)) == len(cases)
