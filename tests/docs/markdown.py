"""Reading the examples out of a Markdown page: which fenced blocks there are, and what each of them is for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`]*)$")
_TITLE = re.compile(r'title="(?P<title>[^"]+)"')


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    info: str
    text: str
    line: int  # of its first line of text
    is_after_blocks: bool  # nothing but blank lines lies between it and the block before it

    @property
    def language(self) -> str:
        return self.info.split(" ")[0]

    @property
    def title(self) -> str | None:
        """The file that the reader is told to save the block as."""
        found = _TITLE.search(self.info)
        return found["title"] if found else None

    @property
    def marks(self) -> str:
        """What the opening line says beside the language and the title."""
        return _TITLE.sub("", self.info).removeprefix(self.language).strip()


@dataclass(frozen=True)
class Command:
    """One line of a console block that a reader types, and what the page shows below it."""

    arguments: str
    shown: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page, in their order."""
    blocks: list[Block] = []
    text: list[str] = []
    opened: tuple[str, str, int] | None = None
    is_after_blocks = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened = fence["indent"], fence["info"].strip(), number + 1
            text = []
        elif opened is not None and fence and not fence["info"].strip():
            indent, info, first = opened
            body = "".join(f"{each.removeprefix(indent)}\n" for each in text)
            blocks.append(Block(info, body, first, is_after_blocks))
            opened, is_after_blocks = None, True
        elif opened is not None:
            text.append(line)
        elif line.strip():
            is_after_blocks = False
    if opened is not None:
        raise ValueError(f"{page.name}: the block that begins at line {opened[2]} has no end")
    return blocks


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block: a line that begins with ``$ `` is typed, what follows is the answer."""
    commands: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            commands.append(Command(line.removeprefix("$ "), "", number))
        elif commands:
            last = commands.pop()
            commands.append(Command(last.arguments, f"{last.shown}{line}\n", last.line))
        elif line.strip():
            raise ValueError(f"line {number}: a console block begins with a line '$ command'")
    return commands
