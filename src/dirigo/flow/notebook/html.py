"""Small pieces of HTML. Whatever is text is escaped here, and nowhere else; colours suit light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from dirigo.flow.plan.picture import one_line

GOOD: Final = "#2e7d32"
BAD: Final = "#c62828"
QUIET: Final = "#808080"
_CELL: Final = "text-align:left;padding:2px 14px 2px 0;vertical-align:top"
_ROWS_MOST: Final = 100


class Markup(str):
    """Text that is HTML already. All other text is escaped when it becomes a part of it."""

    __slots__ = ()


def plain(text: object) -> Markup:
    """Text as HTML: on one line, not endless, and without any meaning."""
    return text if isinstance(text, Markup) else Markup(escape(one_line(str(text))))


def coloured(text: object, colour: str) -> Markup:
    return Markup(f'<span style="color:{colour}">{plain(text)}</span>')


def quiet(text: object) -> Markup:
    return coloured(text, QUIET)


def title(name: object, told: object = "") -> Markup:
    """A name, and beside it what it is."""
    return Markup(f"<div><b>{plain(name)}</b> {quiet(told)}</div>")


def table(rows: Iterable[Sequence[object]], headings: Sequence[str] = ()) -> Markup:
    """Rows of cells; of very many rows only the first ones."""
    rows = list(rows)
    lines = [_row(rows[number]) for number in range(min(len(rows), _ROWS_MOST))]
    if len(rows) > _ROWS_MOST:
        lines.append(_row([quiet(f"and {len(rows) - _ROWS_MOST:,} more")]))
    head = "".join(f'<th style="{_CELL}">{quiet(heading)}</th>' for heading in headings)
    return Markup(f"<table>{f'<tr>{head}</tr>' if head else ''}{''.join(lines)}</table>")


def stacked(*parts: Markup) -> Markup:
    """One below the other."""
    return Markup(f"<div>{''.join(parts)}</div>")


def _row(cells: Sequence[object]) -> str:
    shown = [f'<td style="{_CELL}">{plain(cell)}</td>' for cell in cells]
    return f"<tr>{''.join(shown)}</tr>"
