"""Paths that users give to sources and sinks: files and folders of this machine, or shared by all, and nothing remote."""

from __future__ import annotations

import re
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from dirigo.flow.errors import FlowError

PathArgument = str | PathLike[str]

# With one slash as well: pathlib makes that of two. A scheme has more than one letter.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_path(path: PathArgument, what: str) -> Path:
    """The file or folder that is meant; a place that is not local is refused."""
    try:
        text: Any = fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str) or not text or "\0" in text:
        raise FlowError(f"{what}: {path!r} is no path; name a file or folder by a str or a pathlib.Path.")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(text)
    if scheme[1].lower() == "file":
        place = urlsplit(text)
        if place.netloc in ("", "localhost") and not place.query and not place.fragment:
            return Path(unquote(place.path))
    raise FlowError(
        f"{what}: '{text}' is no local path, and other file systems are not supported; mount it, or copy the files to a "
        "folder that all workers see."
    )
