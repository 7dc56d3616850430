"""Drawings of a flow: a Mermaid flowchart for documents, and boxes and lines of characters for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap
from unicodedata import east_asian_width

from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.plan.picture import Arrow, Box, Picture, Shape

COLUMNS_MAX = 100


# --- Mermaid -------------------------------------------------------------------------------------------------------------

_SHAPES: dict[Shape, tuple[str, str]] = {
    "source": ('(["', '"])'),
    "operator": ('["', '"]'),
    "sink": ('[("', '")]'),
}
_COLOURS: dict[Shape, str] = {
    "source": "fill:#e6f4ea,stroke:#2e7d32,color:#111111",
    "operator": "fill:#eef3fb,stroke:#3b6db3,color:#111111",
    "sink": "fill:#fdf3e1,stroke:#b36b00,color:#111111",
}
# Besides what would end a label, also what Markdown gives a meaning, which newer versions of Mermaid read in labels.
_PLAIN = re.compile(r"[^\W_]|[ .,+=/()'→↳-]|(?<=[^\W_])_(?=[^\W_])")


def as_mermaid(flow: Dataflow) -> str:
    """The flow as a Mermaid flowchart. Side outputs are dashed; bad rows come from all that is in the frame."""
    picture = Picture(flow)
    ids = {box.name: f"stage{number}" for number, box in enumerate(picture.boxes, 1)}
    lines = ["flowchart TB", f'    subgraph flow["{_escaped(flow.name)}"]']
    lines += [f"        {_mermaid_box(ids[box.name], box)}" for box in picture.boxes if not box.is_after_errors]
    lines.append("    end")
    lines += [f"    {_mermaid_box(ids[box.name], box)}" for box in picture.boxes if box.is_after_errors]
    for box in picture.boxes:
        if box.takes_errors:
            lines.append(f"    {_mermaid_arrow('flow', ids[box.name], 'errors', is_dashed=True)}")
        for arrow in picture.arrows_from(box):
            drawn = _mermaid_arrow(ids[arrow.sender], ids[arrow.receiver], arrow.label, is_dashed=arrow.is_side_output)
            lines.append(f"    {drawn}")
    shapes = {box.shape for box in picture.boxes}
    lines += [f"    classDef {shape} {colours}" for shape, colours in _COLOURS.items() if shape in shapes]
    return "\n".join(lines) + "\n"


def _mermaid_box(identity: str, box: Box) -> str:
    start, end = _SHAPES[box.shape]
    text = "<br>".join([f"<b>{_escaped(box.name)}</b>", *map(_escaped, box.texts), f"<i>{_escaped(box.marks)}</i>"])
    return f"{identity}{start}{text}{end}:::{box.shape}"


def _mermaid_arrow(sender: str, receiver: str, label: str, *, is_dashed: bool) -> str:
    return f'{sender} {"-.->" if is_dashed else "-->"}|"{_escaped(label)}"| {receiver}'


def _escaped(text: str) -> str:
    """Whatever could have a meaning, as a number. A first character could begin a list: a letter could not."""
    return "".join(
        each if _PLAIN.match(text, position) and (position or each.isalpha() or each == "↳") else f"#{ord(each)};"
        for position, each in enumerate(text)
    )


# --- text ----------------------------------------------------------------------------------------------------------------

_FRAMES: dict[Shape, tuple[str, ...]] = {
    "source": tuple("╭╮╰╯─│┬"),
    "operator": tuple("┌┐└┘─│┬"),
    "sink": tuple("╔╗╚╝═║╤"),
}
_INDENT = "  "


def as_text(flow: Dataflow) -> str:
    """The flow as boxes from top to bottom. Arrows go down to the next box, or say where they lead."""
    picture = Picture(flow)
    width = min(COLUMNS_MAX, max(_width_wanted(box) for box in picture.boxes))
    lines = [*_wrapped(picture.title, COLUMNS_MAX), ""]
    for box, following in zip(picture.boxes, [*picture.boxes[1:], None], strict=True):
        if box.takes_errors:
            lines += [f"{_INDENT}┊ errors, from every stage above", f"{_INDENT}▼"]
        arrows = picture.arrows_from(box)
        lines += _text_box(box, width, leads_on=bool(arrows))
        lines += _text_arrows(arrows, following)
    return "\n".join(lines).rstrip("\n") + "\n"


def _width_wanted(box: Box) -> int:
    return max(len(box.name) + len(box.marks) + 9, *(_columns(text) + 4 for text in box.texts))


def _text_box(box: Box, width: int, *, leads_on: bool) -> Iterator[str]:
    top_left, top_right, bottom_left, bottom_right, across, down, tee = _FRAMES[box.shape]
    texts = list(box.texts)
    name = f" {box.name} "
    if len(name) + len(box.marks) + 7 > width:  # no room in the frame
        texts.insert(0, box.name)
        name = ""
    yield f"{top_left}{across}{name}{f' {box.marks} '.rjust(width - 4 - len(name), across)}{across}{top_right}"
    for text in texts:
        for line in _wrapped(text, width - 4, indent=len(text) - len(text.lstrip("↳ ")) + 2):
            yield f"{down} {line}{' ' * (width - 4 - _columns(line))} {down}"
    yield f"{bottom_left}{across}{tee if leads_on else across}{across * (width - 4)}{bottom_right}"


def _text_arrows(arrows: Sequence[Arrow], following: Box | None) -> Iterator[str]:
    onward = [arrow for arrow in arrows if following is not None and arrow.receiver == following.name]
    elsewhere = [arrow for arrow in arrows if arrow not in onward]
    for arrow in elsewhere:
        is_last = arrow is elsewhere[-1] and not onward
        line = "╌" if arrow.is_side_output else "─"
        parts = _wrapped(f"{line} {arrow.label} {line * 2}▶ {arrow.receiver}", COLUMNS_MAX - 6)
        yield f"{_INDENT}{'╰' if is_last else '├'}{line}{parts[0]}"
        for part in parts[1:]:
            yield f"{_INDENT}{' ' if is_last else '│'}   {part}"
    for arrow in onward:
        first, *rest = _wrapped(arrow.label, COLUMNS_MAX - 6)
        yield f"{_INDENT}{'┊' if arrow.is_side_output else '│'} {first}"
        for part in rest:
            yield f"{_INDENT}│   {part}"
    if onward:
        yield f"{_INDENT}▼"
    else:
        yield ""


_FILLER = "\ue000"


def _columns(text: str) -> int:
    """How wide a terminal shows a text."""
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def _wrapped(text: str, columns: int, indent: int = 0) -> list[str]:
    # A wide character counts as two while lines are broken, and a break may fall between the two: one column is kept for it.
    even = "".join(each + _FILLER * (_columns(each) - 1) for each in text)
    lines = wrap(even, columns - (_FILLER in even), subsequent_indent=" " * indent, break_on_hyphens=False)
    return [line.replace(_FILLER, "") for line in lines]
