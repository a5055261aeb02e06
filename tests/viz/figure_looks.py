"""How a figure looks, measured: what a critical reader would complain of.

Colours as grey print shows them and as two kinds of colour-blind readers see them, text sizes,
texts that overlap, text too pale to read.
"""

from itertools import combinations
from typing import Any, NamedTuple

MIN_FONT = 8.0  # points, at the width of a notebook's column
MIN_CONTRAST = 4.5  # of text on its ground, WCAG 2 level AA
MIN_STEP = 7.0  # of lightness (L* of 100) between two fills that only their tone tells apart
MAX_WIDTH = 7.6  # inches; wider files are scaled down, and their text with them
_OVERLAP = 0.12  # of the smaller text's area

# Machado, Oliveira, Fernandes (2009), severity 1, on linear RGB
_BLINDNESS = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                   (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                     (-0.011820, 0.042940, 0.968881)),
}  # fmt: skip


class Fill(NamedTuple):
    """How an area is filled."""

    colour: tuple[float, float, float]
    hatch: str


def _linear(rgb: Any) -> tuple[float, ...]:
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb[:3])


def luminance(rgb: Any) -> float:
    """Relative luminance, 0 to 1: what is left of a colour in grey print."""
    r, g, b = _linear(rgb)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def lightness(luminance: float) -> float:
    """L* of CIELAB, 0 to 100: equal steps look equal."""
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


def contrast(a: Any, b: Any) -> float:
    """Contrast ratio of two colours, 1 to 21."""
    bright, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def blind_difference(a: Any, b: Any) -> float:
    """The smallest distance of two colours (CIELAB) for the colour-blind readers above."""
    return min(_lab_distance(_seen(a, m), _seen(b, m)) for m in _BLINDNESS.values())


def _seen(rgb: Any, matrix: Any) -> tuple[float, ...]:
    linear = _linear(rgb)
    return tuple(
        min(max(sum(k * c for k, c in zip(row, linear, strict=True)), 0), 1) for row in matrix
    )


def _lab_distance(a: Any, b: Any) -> float:
    return sum((x - y) ** 2 for x, y in zip(_lab(a), _lab(b), strict=True)) ** 0.5


def _lab(linear: Any) -> tuple[float, float, float]:
    r, g, b = linear
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def fills(figure: Any) -> set[Fill]:
    """Every way in which areas of the figure are filled."""
    return {
        Fill(tuple(p.get_facecolor()[:3]), p.get_hatch() or "")
        for ax in figure.axes
        for p in _areas(ax)
    }


def _areas(ax: Any) -> list[Any]:
    """What is filled, arrows apart."""
    return [
        patch
        for patch in ax.patches
        if patch.get_fill()
        and patch.get_facecolor()[3] > 0
        and type(patch).__name__ != "FancyArrowPatch"
    ]


def alike_in_grey(figure: Any) -> list[tuple[Fill, Fill]]:
    """Pairs of fills of different colours with one hatch that grey print does not tell apart."""
    return [
        (a, b)
        for a, b in combinations(sorted(fills(figure)), 2)
        if a.hatch == b.hatch and a.colour != b.colour
        and abs(lightness(luminance(a.colour)) - lightness(luminance(b.colour))) < MIN_STEP
    ]  # fmt: skip


def alike_to_the_colour_blind(figure: Any) -> list[tuple[Fill, Fill]]:
    """The same for readers who see two colours of light only."""
    return [
        (a, b)
        for a, b in combinations(sorted(fills(figure)), 2)
        if a.hatch == b.hatch and a.colour != b.colour
        and blind_difference(a.colour, b.colour) < MIN_STEP
    ]  # fmt: skip


def texts(figure: Any) -> list[Any]:
    """Every text that is seen: labels, ticks, legends."""
    from matplotlib.text import Text

    figure.draw_without_rendering()  # tick labels come into being here
    hidden = {
        text
        for ax in figure.axes
        if not ax.axison
        for axis in (ax.xaxis, ax.yaxis)
        for text in axis.findobj(Text)
    }
    return [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in hidden
    ]


def small_texts(figure: Any) -> list[str]:
    """Texts below MIN_FONT."""
    return [t.get_text() for t in texts(figure) if t.get_fontsize() < MIN_FONT]


def overlapping_texts(figure: Any) -> list[tuple[str, str]]:
    """Pairs of texts that lie on each other."""
    from matplotlib.text import Text

    # an annotation's own extent holds its arrow, too
    boxes = [(t.get_text(), Text.get_window_extent(t)) for t in texts(figure)]
    found = []
    for (one, a), (two, b) in combinations(boxes, 2):
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        high = min(a.y1, b.y1) - max(a.y0, b.y0)
        area = min(a.width * a.height, b.width * b.height)
        if wide > 0 and high > 0 and wide * high > _OVERLAP * area:
            found.append((one, two))
    return found


def pale_texts(figure: Any) -> list[tuple[str, float]]:
    """Texts whose contrast with what lies below them is too small, and that contrast."""
    from matplotlib.colors import to_rgb

    found = []
    for text in texts(figure):
        ground = _ground(figure, text)
        ratio = contrast(to_rgb(text.get_color()), ground)
        if ratio < MIN_CONTRAST:
            found.append((text.get_text(), round(ratio, 1)))
    return found


def _ground(figure: Any, text: Any) -> Any:
    """The colour below a text's middle: its own box, the newest area there, or paper."""
    from matplotlib.colors import to_rgb

    box = text.get_bbox_patch()
    if box is not None and box.get_facecolor()[3] > 0:
        return box.get_facecolor()[:3]
    extent = text.get_window_extent()
    middle = ((extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2)
    below = to_rgb("white")
    for ax in figure.axes:
        for patch in _areas(ax):
            if patch.contains_point(middle):
                below = patch.get_facecolor()[:3]
    return below


def wide_texts(figure: Any) -> list[str]:
    """Texts of cells that reach over the cell's border, by more than a hair.

    A text is a cell's when its middle lies in a rectangle of about its height that holds no other.
    """
    from matplotlib.patches import Rectangle

    found = []
    for ax in figure.axes:
        cells = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_fill()]
        for text in (t for t in texts(figure) if t.axes is ax):
            extent = text.get_window_extent()
            middle = ((extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2)
            for cell in cells:
                area = cell.get_window_extent()
                if area.contains(*middle) and extent.width > area.width + 1:
                    found.append(text.get_text())
                    break
    return found


def width_in_inches(png: bytes, dpi: float) -> float:
    """How wide a PNG is."""
    return int.from_bytes(png[16:20], "big") / dpi
