"""``dirigo docs``: writes the pages that are generated from code."""

from __future__ import annotations

from pathlib import Path

import typer

from dirigo.cli.display.output import console, fail
from dirigo_lab.pages.mailbox_page import mailbox_page


def docs(
    into: Path = typer.Option(Path("docs"), "--into", metavar="DIR", help="The documentation folder."),
    check: bool = typer.Option(False, "--check", help="Write nothing; fail if a page is stale."),
) -> None:
    """Write the documentation pages that are generated from code.

    Example: dirigo docs --check
    """
    if not into.is_dir():
        fail(f"there is no folder {into}; run this in the repository, or name the folder with --into")
    page = into / "internals" / "mailbox.md"
    text = mailbox_page()
    if page.exists() and page.read_text() == text:
        console.print(f"{page} is up to date")
    elif check:
        fail(f"{page} is stale; run 'make docs'")
    else:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
        console.print(f"wrote {page}")
