"""The course's figures: current, true, readable in grey, the same bytes every time."""

import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

import figure_looks as looks
from figure_facts import FACTS

from nanoengine.cli import main
from nanoengine.viz.gallery import files
from nanoengine.viz.gallery.entries import FIGURES
from nanoengine.viz.gallery.recorded import FiguresError, figures_folder, recorded
from nanoengine.viz.style import Picture

NAMES = list(FIGURES)
ALT_CHARS = 700
QUICK = "kv_carving"  # needs no engine


@pytest.fixture(scope="module")
def pictures() -> dict[str, Picture]:
    """Every figure, drawn once."""
    return files.draw(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_figure_is_current(pictures: dict[str, Picture], name: str) -> None:
    differences = files.check(figures_folder(), {name: pictures[name]})
    assert not differences, f"run `nanoengine figures --only {name}`: {differences[0]}"


@pytest.mark.parametrize("name", NAMES)
def test_the_alt_text_states_numbers_that_are_true(pictures: dict[str, Picture], name: str) -> None:
    alt = pictures[name].alt
    for fact in FACTS[name]():
        assert fact in alt
    assert len(alt) <= ALT_CHARS, "a screen reader reads it aloud"


def test_every_figure_has_its_facts_and_no_file_is_left_over() -> None:
    assert set(FACTS) == set(FIGURES)
    kinds = (".svg", ".png", ".txt")
    drawn = {path.name for path in figures_folder().iterdir() if path.suffix in kinds}
    assert drawn == {name + kind for name in FIGURES for kind in kinds}


@pytest.mark.parametrize("name", NAMES)
def test_a_critical_reader_has_nothing_to_say(pictures: dict[str, Picture], name: str) -> None:
    picture = pictures[name]
    figure = picture.figure
    assert looks.small_texts(figure) == []
    assert looks.overlapping_texts(figure) == []
    assert looks.wide_texts(figure) == []
    assert looks.pale_texts(figure) == []
    assert looks.alike_in_grey(figure) == []
    assert looks.alike_to_the_colour_blind(figure) == []
    assert looks.width_in_inches(picture.png(100), 100) <= looks.MAX_WIDTH


@pytest.mark.parametrize("name", NAMES)
def test_a_dark_page_shows_white_paper_around_it(name: str) -> None:
    """The PNG is opaque and its rim is paper; the SVG begins with a sheet of paper."""
    from PIL import Image

    image = Image.open(figures_folder() / f"{name}.png").convert("RGBA")
    assert image.getchannel("A").getextrema() == (255, 255)
    rim = [image.getpixel((x, y)) for x in range(image.width) for y in (0, image.height - 1)]
    assert set(rim) == {(255, 255, 255, 255)}
    svg = (figures_folder() / f"{name}.svg").read_text()
    sheet = svg[svg.index('<g id="patch_1">') :]
    assert "fill: #ffffff" in sheet[: sheet.index("</g>")]


def test_another_process_draws_the_same_bytes(tmp_path: Path) -> None:
    """Hashes of another seed, another folder, another moment."""
    command = [sys.executable, "-m", "nanoengine", "figures", "--only", QUICK, "--out"]
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([*command, str(tmp_path / seed)], check=True, env=env, capture_output=True)
    one, two = ((tmp_path / seed / f"{QUICK}.svg").read_bytes() for seed in ("1", "2"))
    assert one == two
    assert one.startswith(b"<?xml")
    assert b'role="img"' in one


def test_check_finds_what_is_not_current(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figures", "--only", QUICK, "--out", str(tmp_path)]) == 0
    check = ["figures", "--check", "--only", QUICK, "--out", str(tmp_path)]
    assert main(check) == 0
    for kind, word in (("svg", "other bytes"), ("txt", "alt text is now"), ("png", "no PNG")):
        path = tmp_path / f"{QUICK}.{kind}"
        good = path.read_bytes()
        path.write_bytes(good[1:])
        assert main(check) == 1
        assert word in capsys.readouterr().out
        path.unlink()
        assert main(check) == 1
        assert "missing" in capsys.readouterr().out
        path.write_bytes(good)
    assert main(check) == 0


def test_another_matplotlib_is_said_and_alt_texts_still_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["figures", "--only", QUICK, "--out", str(tmp_path)]) == 0
    svg, alt = tmp_path / f"{QUICK}.svg", tmp_path / f"{QUICK}.txt"
    svg.write_text(svg.read_text() + " ")
    monkeypatch.setattr(files, "matplotlib_version", lambda: "0.1")
    check = ["figures", "--check", "--only", QUICK, "--out", str(tmp_path)]
    assert main(check) == 0
    assert "SVG bytes are not" in capsys.readouterr().out
    alt.write_text("something else")
    assert main(check) == 1


def test_errors_say_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["figures", "--only", "slot_maping"]) == 1
    assert "did you mean slot_mapping?" in capsys.readouterr().err
    assert main(["figures", "--check", "--only", QUICK, "--out", str(tmp_path)]) == 1
    assert "run `nanoengine figures`" in capsys.readouterr().err
    with pytest.raises(FiguresError, match="restore it with git"):
        recorded("nothing.json")
    monkeypatch.setattr("nanoengine.__file__", str(tmp_path / "a" / "b" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FiguresError, match="checkout"):
        figures_folder()
    shutil.rmtree(tmp_path)


def test_the_recorded_calls_are_those_of_a_step_now() -> None:
    """Names, depths and notes; times are what was recorded."""
    path = figures_folder() / "record.py"
    module = types.ModuleType("record")
    module.__file__ = str(path)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    said = [(call.title, call.depth, call.note) for call in module.one_step()]
    told = [(f"{c['owner']}.{c['name']}", c["depth"], c["note"])
            for c in recorded("step_calls_cpu.json")["calls"]]  # fmt: skip
    assert said == told, "run `python figures/record.py`, then `nanoengine figures`"


def test_list_names_every_figure_and_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert all(" from " in line for line in lines)
