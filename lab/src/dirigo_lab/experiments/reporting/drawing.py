"""How experiments look: one style, and the few kinds of pictures that they are made of.

What is drawn comes from rows of a summary. A row that has no results, or not the value that is asked for, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from dirigo_lab.experiments.experiment import ResultRow
from dirigo_lab.pages.figure import COLOURS, DPI, blank_figure

WIDTH, HEIGHT = 9.0, 4.6  # in inches
_ROW_HEIGHT = 3.2  # where panels lie above each other
_STYLE: Any = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.titlesize": 12,
}
# A strategy looks the same in all experiments; names that begin like this share its colour.
_OF_STRATEGIES = {
    "fifo": COLOURS[0],
    "directsend": COLOURS[1],
    "rejectsend": COLOURS[2],
    "hybrid": COLOURS[3],
    "tokens": COLOURS[4],
    "edf": COLOURS[5],
}
_LEAST_MS = 0.001  # what a logarithmic axis can still show
_ALL_SERIES = 0.8  # of the room between two groups


def save(figure_maker: Callable[[Any], None], path: Path, *, title: str = "") -> bytes:
    """Have a figure drawn in our style, and keep it as a PNG, which is given back.

    Panels above each other make it higher, unless whoever draws it sets its size.
    """
    figure = blank_figure(WIDTH, HEIGHT)
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        if title:
            figure.suptitle(title)
        figure_maker(figure)
        if tuple(figure.get_size_inches()) == (WIDTH, HEIGHT):
            figure.set_size_inches(WIDTH, max(HEIGHT, _ROW_HEIGHT * _panels_above_each_other(figure) + 0.6))
        image = BytesIO()
        figure.savefig(image, format="png", dpi=DPI)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(image.getvalue())
    return image.getvalue()


def distributions(
    axes: Any,
    rows: Sequence[ResultRow],
    *,
    x: Callable[[ResultRow], str],
    series: Callable[[ResultRow], str],
    satisfaction: bool = False,
) -> None:
    """Latencies, on a logarithmic axis: a box from p25 to p75 with the median, whiskers from p5 to p95, and a tick at p99.

    Rows with the same x stand beside each other, a colour for each series. With ``satisfaction``, dots on a second axis tell
    the share of results in time.
    """
    rows = [row for row in rows if "p50" in row.values]
    groups = list(dict.fromkeys(map(x, rows)))
    colours = colours_of(list(dict.fromkeys(map(series, rows))))
    room = _ALL_SERIES / max(1, len(colours))
    width = 0.72 * min(room, 0.4)
    second = _second_axes(axes) if satisfaction else None
    drawn = set()
    for row in rows:
        group, name = x(row), series(row)
        assert (group, name) not in drawn, f"two rows for {name!r} at {group!r}: choose one job"
        drawn.add((group, name))
        at = groups.index(group) + (list(colours).index(name) - (len(colours) - 1) / 2) * room
        _box(axes, row, at, width, colours[name])
        if second is not None:
            share = 100 * row["satisfaction"]
            beside = at + 0.68 * width  # where it hides nothing of its box
            second.plot(beside, share, "o", color=colours[name], markersize=6, markeredgecolor="white", clip_on=False)
    _logarithmic(axes)
    axes.set_ylabel("latency, ms")
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.5 - 0.1, len(groups) - 0.5 + 0.1)
    axes.grid(visible=False, axis="x")
    _legend(axes, colours)


def lines(
    axes: Any,
    rows: Sequence[ResultRow],
    *,
    x: Callable[[ResultRow], float],
    value: str,
    series: Callable[[ResultRow], str],
    log_y: bool = False,
    scale: float = 1.0,
) -> None:
    """A value, times ``scale``, along x: the median over the seeds as a line, from the least to the greatest as a band."""
    rows = [row for row in rows if value in row.values]
    colours = colours_of(list(dict.fromkeys(map(series, rows))))
    for name, colour in colours.items():
        its = sorted((row for row in rows if series(row) == name), key=x)
        places = [x(row) for row in its]
        spreads = [row.values[value] for row in its]
        low, high = [spread.low * scale for spread in spreads], [spread.high * scale for spread in spreads]
        axes.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(
            places, [spread.median * scale for spread in spreads], color=colour, linewidth=1.8, marker="o", markersize=4
        )
    if log_y:
        _logarithmic(axes)
    else:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    _legend(axes, colours)


def bars(axes: Any, names: Sequence[str], values: Mapping[str, Sequence[float]]) -> None:
    """A bar per name and series; ``values`` has a number for each name, by series."""
    colours = colours_of(list(values))
    room = _ALL_SERIES / max(1, len(colours))
    for number, (name, its) in enumerate(values.items()):
        assert len(its) == len(names), f"{name} has {len(its)} values for {len(names)} names"
        places = [place + (number - (len(colours) - 1) / 2) * room for place in range(len(names))]
        axes.bar(places, its, width=0.9 * room, color=colours[name])
    axes.set_xticks(range(len(names)), names)
    axes.grid(visible=False, axis="x")
    _legend(axes, colours)


def colours_of(series: Sequence[str]) -> dict[str, str]:
    """A colour for each series: that of its strategy, or one that no other has as long as there are enough."""
    found: dict[str, str] = {}
    for name in series:
        plain = "".join(letter for letter in name.lower() if letter.isalnum())
        wanted = next((colour for known, colour in _OF_STRATEGIES.items() if plain.startswith(known)), None)
        if wanted is not None and wanted not in found.values():
            found[name] = wanted
    for number, name in enumerate(series):
        if name not in found:
            free = [colour for colour in COLOURS if colour not in found.values()]
            found[name] = free[0] if free else COLOURS[number % len(COLOURS)]
    return {name: found[name] for name in series}


# --- parts -----------------------------------------------------------------------------------------------------------------


def _box(axes: Any, row: ResultRow, at: float, width: float, colour: str) -> None:
    from matplotlib.patches import Rectangle

    p5, p25, p50, p75, p95, p99 = (max(_LEAST_MS, row[name]) for name in ("p5", "p25", "p50", "p75", "p95", "p99"))
    axes.vlines(at, p5, p95, color=colour, linewidth=1.2)
    axes.hlines([p5, p95], at - width / 5, at + width / 5, color=colour, linewidth=1.2)
    axes.add_patch(Rectangle((at - width / 2, p25), width, p75 - p25, facecolor=f"{colour}55", edgecolor=colour, zorder=3))
    axes.hlines(p50, at - width / 2, at + width / 2, color=colour, linewidth=2.4, zorder=4)
    axes.plot(at, p99, "_", color=colour, markersize=9, markeredgewidth=2.0)


def _second_axes(axes: Any) -> Any:
    second = axes.twinx()
    second.set_ylim(0, 105)
    second.set_ylabel("dots: results in time, %")
    second.grid(visible=False)
    second.spines["right"].set_visible(True)
    return second


def _logarithmic(axes: Any) -> None:
    """Few ticks, and plain numbers at them, also where there is less than a power of ten to show."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _legend(axes: Any, colours: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    if len(colours) > 1:
        handles = [Patch(facecolor=colour, label=name) for name, colour in colours.items()]
        # Above the panel, where it hides nothing.
        axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles), borderaxespad=0.2)


def _panels_above_each_other(figure: Any) -> int:
    specs = [axes.get_subplotspec() for axes in figure.axes]
    return max((int(spec.get_gridspec().nrows) for spec in specs if spec is not None), default=1)
