"""A page of HTML as the lab writes it: one style for all, tables, lists, and pictures that lie in the page itself."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
a { color: #1f6f8b; }
img { max-width: 100%; }
.lead { font-size: 1.05rem; color: #555; margin-top: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
th { color: #555; font-weight: 600; }
th.number, td.number { text-align: right; white-space: nowrap; padding-left: .8rem; padding-right: 0; }
.good { color: #2f7d3b; font-weight: 600; }
.bad { color: #a5650a; font-weight: 600; }
"""


class Html(str):
    """Text that is HTML already, and goes into a page as it is."""

    __slots__ = ()


def page(title: str, *parts: str) -> str:
    """A whole page, from parts that are HTML."""
    body = "\n".join(parts)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1>
{body}
</body></html>
"""


def heading(text: str) -> Html:
    return Html(f"<h2>{escape(text)}</h2>")


def lead(text: str) -> Html:
    """The sentence under a title."""
    return Html(f'<p class="lead">{shown(text)}</p>')


def link(text: str, address: str) -> Html:
    return Html(f'<a href="{escape(address)}">{escape(text)}</a>')


def verdict(text: str, *, good: bool) -> Html:
    return Html(f'<span class="{"good" if good else "bad"}">{escape(text)}</span>')


def items(facts: Iterable[str]) -> Html:
    return Html("<ul>" + "".join(f"<li>{shown(fact)}</li>" for fact in facts) + "</ul>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> Html:
    """A table whose first columns, so many of them, hold words, and the others numbers."""
    cells = "".join(_cell("th", cell, number >= words) for number, cell in enumerate(head))
    body = "".join(
        "<tr>" + "".join(_cell("td", cell, number >= words) for number, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return Html(f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>')


def picture(image: bytes, told: str) -> Html:
    """A PNG inside the page, so that the page can be sent to somebody; `told` is for those who cannot see it."""
    return Html(f'<p><img alt="{escape(told)}" src="data:image/png;base64,{base64.b64encode(image).decode()}"></p>')


def shown(text: str) -> str:
    return text if isinstance(text, Html) else escape(text)


def _cell(tag: str, text: str, is_number: bool) -> str:
    opening = f'<{tag} class="number">' if is_number else f"<{tag}>"
    return f"{opening}{shown(text)}</{tag}>"
