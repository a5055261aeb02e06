"""`nanoengine figures`: draw every figure of the course again, or check that none changed."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from nanoengine.commands.options import Parser
from nanoengine.viz.gallery import files
from nanoengine.viz.gallery.entries import FIGURES
from nanoengine.viz.gallery.recorded import FiguresError, figures_folder


def main(argv: Sequence[str]) -> int:
    """`nanoengine figures [--only NAME]... [--out FOLDER] [--check] [--list]`: 1 if one differs."""
    parser = Parser("nanoengine figures", description="Draw the course's figures as SVG and PNG.")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="this figure; may be repeated"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="default: the checkout's figures/"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is not current"
    )
    parser.add_argument("--list", action="store_true", help="the names, and what is drawn from")
    args = parser.parse(argv)
    if args.list:
        for name, entry in FIGURES.items():
            print(f"{name:<16} lesson {entry.lesson}  from {entry.source}")
        return 0
    names = [_known(name) for name in args.only] if args.only else list(FIGURES)
    folder = args.out or figures_folder()
    return _check(folder, names) if args.check else _write(folder, names)


def _known(name: str) -> str:
    if name not in FIGURES:
        close = difflib.get_close_matches(name, FIGURES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(FIGURES)}"
        raise FiguresError(f"no figure is called {name!r}: {hint}")
    return name


def _write(folder: Path, names: list[str]) -> int:
    written = files.write(folder, files.draw(names))
    print(f"{len(names)} figures, {len(written)} files in {folder}")
    return 0


def _check(folder: Path, names: list[str]) -> int:
    if not files.svg_is_comparable(folder):
        print(
            f"drawn by another matplotlib than {files.matplotlib_version()}: alt texts are "
            "compared, SVG bytes are not"
        )
    differences = files.check(folder, files.draw(names))
    for difference in differences:
        print(difference)
    state = f"{len(differences)} differences" if differences else "all current"
    print(f"{len(names)} figures checked: {state}")
    return 1 if differences else 0
