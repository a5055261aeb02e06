"""Figures as files: NAME.svg, NAME.png and NAME.txt (the alt text); and are they current?"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nanoengine.viz.gallery.entries import FIGURES, Entry
from nanoengine.viz.gallery.recorded import FiguresError
from nanoengine.viz.style import Picture

DPI = 160
MANIFEST = "manifest.json"
_PNG = b"\x89PNG\r\n\x1a\n"


class Difference(NamedTuple):
    """A file that is not what would be drawn now, and how."""

    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def matplotlib_version() -> str:
    """The release that draws. Raises FiguresError when there is none."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise FiguresError('figures need matplotlib: pip install "nanoengine[lessons]"') from None
    version: str = mpl.__version__
    return version


def draw(names: Iterable[str]) -> dict[str, Picture]:
    """These figures, drawn from fresh data."""
    matplotlib_version()  # or a word about what is missing
    return {name: FIGURES[name].picture() for name in names}


def write(folder: Path, pictures: Mapping[str, Picture]) -> list[Path]:
    """Put figures into a folder, with the manifest of all; returns the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, picture in pictures.items():
        svg, png, alt = _paths(folder, name)
        svg.write_text(picture.svg(), encoding="utf-8", newline="\n")
        png.write_bytes(picture.png(DPI))
        alt.write_text(picture.alt + "\n", encoding="utf-8", newline="\n")
        written += [svg, png, alt]
    text = json.dumps(_manifest(), indent=1) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8", newline="\n")
    return written


def check(folder: Path, pictures: Mapping[str, Picture]) -> list[Difference]:
    """What differs between a folder's files and the figures as they are drawn now.

    SVG files are compared byte for byte. Another release of matplotlib draws other bytes: then the
    alt texts are compared, which hold the figures' numbers, and `svg_is_comparable` says so.
    """
    comparable = svg_is_comparable(folder)
    found: list[Difference] = []
    for name, picture in pictures.items():
        found += _check_one(folder, name, picture, comparable)
    return found


def svg_is_comparable(folder: Path) -> bool:
    """Whether the folder was drawn by the installed release of matplotlib.

    Raises FiguresError when the manifest is missing or lists other figures.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        drawn_with, figures = manifest["matplotlib"], manifest["figures"]
    except (OSError, ValueError, KeyError) as error:
        raise FiguresError(
            f"{folder / MANIFEST} cannot be read ({error!r:.80}): run `nanoengine figures`"
        ) from None
    if figures != _manifest()["figures"]:
        raise FiguresError(f"{folder / MANIFEST} lists other figures: run `nanoengine figures`")
    return bool(drawn_with == matplotlib_version())


def _check_one(folder: Path, name: str, picture: Picture, comparable: bool) -> list[Difference]:
    svg, png, alt = _paths(folder, name)
    missing = [Difference(path, "missing") for path in (svg, png, alt) if not path.is_file()]
    if missing:
        return missing
    found = []
    if alt.read_text(encoding="utf-8") != picture.alt + "\n":
        found.append(Difference(alt, f"the alt text is now {picture.alt!r:.200}"))
    if comparable and svg.read_bytes() != picture.svg().encode():
        found.append(Difference(svg, "other bytes are drawn now"))
    if not png.read_bytes().startswith(_PNG):
        found.append(Difference(png, "no PNG"))
    return found


def _paths(folder: Path, name: str) -> tuple[Path, Path, Path]:
    return folder / f"{name}.svg", folder / f"{name}.png", folder / f"{name}.txt"


def _manifest() -> dict[str, object]:
    def row(entry: Entry) -> dict[str, str]:
        return {"lesson": entry.lesson, "source": entry.source}

    return {
        "matplotlib": matplotlib_version(),
        "figures": {name: row(e) for name, e in FIGURES.items()},
    }
