"""How a URI or a path becomes a folder, and the id of a job a folder in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pa_fs

from dirigo.runtime.snapshots.errors import SnapshotError
from dirigo.runtime.snapshots.local_place import LocalPlace
from dirigo.runtime.snapshots.object_place import ObjectPlace
from dirigo.runtime.snapshots.places import Place

# With one slash as well: pathlib makes that of two. A scheme has more than one letter.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def place_at(uri: str) -> Place:
    """The folder that is meant by an absolute path or a URI."""
    text: Any = uri
    if not isinstance(text, str) or not text or "\0" in text:
        raise SnapshotError(f"{uri!r} is no folder for snapshots; name it by a URI or an absolute path.")
    scheme = _SCHEME.match(text)
    if scheme is None or scheme[1].lower() == "file":
        return LocalPlace(_local_path(text, is_uri=scheme is not None))
    shown = _without_secrets(text)
    try:
        file_system, path = pa_fs.FileSystem.from_uri(text)
    except (OSError, ValueError, pa.ArrowException) as error:
        # Of a library that is missing, Arrow lists every place where it has looked; the first line says it.
        reason = str(error).splitlines()[0].replace(text, shown).rstrip(".") if str(error) else type(error).__name__
        raise SnapshotError(
            f"The folder of snapshots '{shown}' cannot be reached: {reason}; check the URI and the access to it."
        ) from error
    return ObjectPlace(file_system, path.rstrip("/"), shown)


def folder_name(job: str) -> str:
    """A name for a job's folder: ids hold what users chose, and file systems do not take everything."""
    if not job:
        raise SnapshotError("A job without an id has no folder for its snapshots; give it an id.")
    name = quote(job, safe="~-_. ")
    return "%2E" + name[1:] if name.startswith(".") else name


def job_of_folder(name: str) -> str:
    return unquote(name)


def _local_path(text: str, *, is_uri: bool) -> Path:
    if is_uri:
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            raise SnapshotError(
                f"'{text}' is no folder of this machine; write file:///path, or name the folder by its path."
            )
        text = unquote(parts.path)
    path = Path(text)
    if not path.is_absolute():
        # Each worker has a working directory of its own, so a relative path would mean many folders.
        raise SnapshotError(f"'{text}' is no absolute path, so each worker would look elsewhere; write the whole path.")
    return path


def _without_secrets(uri: str) -> str:
    """A URI as it may be shown: keys ride in front of the host, or behind the question mark."""
    front, _, rest = uri.partition("://")
    rest = rest.partition("?")[0]
    host, slash, path = rest.partition("/")
    return f"{front}://{host.rpartition('@')[2]}{slash}{path}"
