"""What all our pictures are drawn on: a blank figure, and the colours that tell strategies apart."""

from __future__ import annotations

from typing import Any

COLOURS = ("#b3423a", "#c98a1b", "#1f6f8b", "#4b7f52", "#6b5b95", "#444444")
DPI = 130


def blank_figure(width: float, height: float) -> Any:
    """A figure of matplotlib's that belongs to no window and no global state, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
