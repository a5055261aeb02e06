"""What all figures share: a palette for colour-blind readers and grey print, hatches, sizes.

Colours are Okabe and Ito's (2008), the red darkened until text in it can be read. Nothing is told
by colour alone: every role has a hatch or a text of its own.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, PAPER, MUTED = "#1a1a1a", "#ffffff", "#6b6b6b"
BLUE, ORANGE, GREEN, SKY, RED = "#0072b2", "#e69f00", "#009e73", "#56b4e9", "#b84a00"
WIDTH = 7.0  # inches: a notebook's column
FONT = 9
_PIXELS = 760  # how wide a picture is in a notebook
_SHARP = 160  # dots an inch, so that it is sharp on a dense screen


@dataclass(frozen=True, slots=True)
class Role:
    """How one kind of cell looks."""

    face: str
    hatch: str = ""
    edge: str = INK


EMPTY = Role(PAPER, edge="#c4c4c4")
CACHED = Role("#d9d9d9", hatch="...")
NEW = Role("#f8dc9a")
WRONG = Role("#f4b89a", hatch="xxxx", edge=RED)
FILLING = Role("#efefef", hatch="////", edge=MUTED)
# one look a sequence, told apart in grey by hatch
SEQUENCES = (
    Role("#93c4e6"),
    Role("#f8dc9a", hatch="////"),
    Role("#a6dcc8", hatch="..."),
    Role("#e3bfd6", hatch="\\\\\\\\"),
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure and its alt text, which states what the figure shows, numbers included."""

    figure: "Figure"
    alt: str

    def png(self, dpi: int = 110) -> bytes:
        """The figure as PNG."""
        return self._saved("png", dpi=dpi)

    def svg(self) -> str:
        """The figure as SVG with its alt text, the same bytes every time."""
        import html

        text = self._saved("svg", metadata={"Date": None, "Creator": None}).decode()
        start = text.index("<svg ") + len("<svg ")
        inside = text.index(">", start) + 1
        title = f"\n <title>{html.escape(self.alt)}</title>"
        return f'{text[:start]}role="img" {text[start:inside]}{title}{text[inside:]}'

    def _saved(self, kind: str, **options: Any) -> bytes:
        import io

        import matplotlib as mpl

        buffer = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": "nanoengine", "svg.fonttype": "path"}):
            self.figure.savefig(
                buffer, format=kind, facecolor=PAPER, bbox_inches="tight", **options
            )
        return buffer.getvalue()

    def _repr_html_(self) -> str:
        """An image that a screen reader can read."""
        import base64
        import html

        data = base64.b64encode(self.png(_SHARP)).decode()
        # white paper with a margin: dark themes, too
        style = f"width:{_PIXELS}px;max-width:100%;background:#fff;padding:6px;border-radius:6px"
        return (
            f'<img alt="{html.escape(self.alt)}" style="{style}" '
            f'src="data:image/png;base64,{data}">'
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def __str__(self) -> str:
        """For a terminal: the alt text."""
        return f"[picture: {self.alt}]"


def canvas(height: float, rows: int = 1) -> "tuple[Figure, list[Axes]]":
    """A figure of notebook width and `height` inches with bare axes, one a row.

    Made without pyplot: no global state, no window, nothing to close.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = [figure.add_subplot(rows, 1, row + 1) for row in range(rows)]
    for ax in axes:
        ax.set_axis_off()
        ax.invert_yaxis()
    return figure, axes


def cell(
    ax: "Axes", x: float, y: float, text: str, role: Role, width: float = 1.0, small: bool = False
) -> None:
    """One box with a text in it; y grows downwards, a box is 1 high."""
    from matplotlib.patches import Rectangle

    # two boxes: a hatch takes the colour of its box's edge, and should be quieter than the border
    ax.add_patch(
        Rectangle((x, y), width, 1, facecolor=role.face, edgecolor="#00000030", hatch=role.hatch)
    )
    on_top = 1.0 if role == EMPTY else 1.5  # an empty neighbour does not cover the border
    ax.add_patch(
        Rectangle((x, y), width, 1, fill=False, edgecolor=role.edge, linewidth=1, zorder=on_top)
    )
    if text:
        box = {"facecolor": role.face, "edgecolor": "none", "pad": 1.0} if role.hatch else None
        label(ax, x + width / 2, y + 0.5, text, size=FONT - small, box=box)


def label(
    ax: "Axes",
    x: float,
    y: float,
    text: str,
    size: float = FONT,
    align: str = "center",
    colour: str = INK,
    bold: bool = False,
    box: dict[str, Any] | None = None,
) -> None:
    """A piece of text, centred vertically."""
    ax.text(
        x,
        y,
        text,
        ha=align,
        va="center",
        fontsize=size,
        color=colour,
        fontweight="bold" if bold else "normal",
        bbox=box,
    )
