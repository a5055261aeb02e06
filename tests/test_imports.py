"""What an import costs, and that imports between packages go one way."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nanoengine

ROOT = Path(nanoengine.__file__).parent
# An earlier line never imports a later one; modules of one line may import each other.
ORDER = [
    ("errors",),
    ("config",),
    ("sampling_params",),
    ("context",),
    ("cache",),
    ("kernels",),
    ("distributed",),  # small sums over GPUs take a kernel
    ("attention",),
    ("layers",),
    ("models",),
    ("weights", "dummy_weights"),
    ("tokenizer",),
    ("detokenizer",),
    ("engine",),
    ("classroom", "fetch", "gguf_convert"),
    ("sources",),
    ("llm",),
    ("environment",),
    ("bench", "commands"),
    ("viz",),
    ("course",),
    ("cli",),
    ("__main__",),
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
HEAVY = ("transformers", "triton", "flash_attn", "matplotlib", "huggingface_hub", "gguf", "IPython")


def runtime_imports(tree: ast.AST) -> Iterator[str]:
    """Names of nanoengine modules that a file imports; those for type checkers alone left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nanoengine"):
            module = node.module or ""
            yield from (
                [f"{module}.{a.name}" for a in node.names] if "." not in module else [module]
            )
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("nanoengine"))
        else:
            yield from runtime_imports(node)


def files() -> list[Path]:
    """Every source file of the package but its front door."""
    return [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


def package_of(path: Path) -> str:
    """The top-level package or module that a file belongs to."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def test_every_part_has_its_place() -> None:
    unknown = {package_of(path) for path in files()} - LEVEL.keys()
    assert not unknown, f"{unknown} has no line in ORDER: say what may import it"


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    mine = LEVEL[package_of(path)]
    for name in runtime_imports(tree):
        parts = name.split(".")
        if len(parts) > 1 and parts[1] in LEVEL:
            assert LEVEL[parts[1]] <= mine, f"{path.relative_to(ROOT)} imports {name}"


def loaded_after(statement: str) -> set[str]:
    """The heavy modules that a statement loads in a fresh process."""
    code = f"import sys\n{statement}\nprint(*(m for m in {HEAVY!r} if m in sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_importing_nanoengine_loads_nothing_heavy() -> None:
    assert loaded_after("import nanoengine") == set()
    # torch itself may load triton, where there is one
    allowed = loaded_after("import torch")
    assert loaded_after("from nanoengine import LLM, SamplingParams") <= allowed


BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)
sys.meta_path.insert(0, Blocker())
from nanoengine import LLM, SamplingParams
with LLM(sys.argv[1], device="cpu", num_kvcache_blocks=8) as llm:
    print(llm.generate([1, 2, 3], SamplingParams(temperature=0, max_tokens=4))[0].token_ids)
"""


def test_the_engine_runs_without_any_of_them(
    checkpoint: Callable[[str], Path],
) -> None:
    """As on a laptop without a GPU that has only the core installed, minus transformers even."""
    code = BLOCKED.format(blocked=HEAVY)
    out = subprocess.run(
        [sys.executable, "-c", code, str(checkpoint("qwen3"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.count(",") == 3
