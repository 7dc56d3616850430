"""What is known of a log beside its frames: which log it is, what its batches look like, how far it is on disk or may be
read, and where it ends.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import pyarrow as pa

from dirigo.runtime.results.log import files
from dirigo.runtime.results.log.errors import LogError, reason_of

_FILE: Final = "log.json"
_ENDED_FILE: Final = "ended"
_SYNCED_FILE: Final = "synced"
_VISIBLE_FILE: Final = "visible"
_VERSION: Final = 2


class _Manifest(msgspec.Struct, frozen=True):
    version: int
    id: str
    schema: bytes


def create(folder: Path, schema: pa.Schema, *, holds_back: bool = False) -> str:
    """Begin a log: its folder, its schema and a random id, by which it is told from another one in the same place.

    One that holds back shows what is in it when it is told to.
    """
    _check_that_batches_stand_alone(schema)
    identity = uuid4().hex
    manifest = _Manifest(_VERSION, identity, schema.serialize().to_pybytes())
    try:
        files.make_folder(folder)
        if holds_back:
            mark_visible(folder, 0)
        files.replace_file(folder / _FILE, msgspec.json.encode(manifest))
    except OSError as error:
        raise LogError(
            f"A results log cannot be made in '{folder}' ({reason_of(error)}); make room there, or choose another folder."
        ) from error
    return identity


def load(folder: Path) -> tuple[str, pa.Schema]:
    """Id and schema of the log in this folder."""
    try:
        manifest = msgspec.json.decode((folder / _FILE).read_bytes(), type=_Manifest)
        if manifest.version == _VERSION:
            return manifest.id, pa.ipc.read_schema(pa.py_buffer(manifest.schema))
    except OSError as error:
        raise LogError(f"There is no results log in '{folder}' ({reason_of(error)}); check the path.") from error
    except (msgspec.MsgspecError, pa.ArrowException, ValueError) as error:
        raise LogError(f"'{folder / _FILE}' is damaged ({error}); remove the folder.") from error
    raise LogError(
        f"The results log in '{folder}' has format {manifest.version}, and this is for {_VERSION}; "
        "read it with the version of Dirigo that wrote it."
    )


def exists(folder: Path) -> bool:
    return (folder / _FILE).exists()


def mark_ended(folder: Path, at: int) -> None:
    """Nothing comes any more at this offset or behind it. What lies before it must be on disk already."""
    files.replace_file(folder / _ENDED_FILE, _mark(at))
    files.sync_folder(folder)


def ended_at(folder: Path) -> int | None:
    """The offset behind the last record; None while more may come."""
    return _offset_in(folder / _ENDED_FILE)


def mark_synced(folder: Path, to: int) -> None:
    """All before this offset is on disk: should it not be there one day, it is no torn tail."""
    files.replace_file(folder / _SYNCED_FILE, _mark(to))


def synced_to(folder: Path) -> int:
    """The offset before which all was on disk once; 0 if nothing was."""
    return _offset_in(folder / _SYNCED_FILE) or 0


def mark_visible(folder: Path, to: int) -> None:
    """Readers see what lies before this offset, and it stays. It must be on disk already."""
    files.replace_file(folder / _VISIBLE_FILE, _mark(to))


def visible_to(folder: Path) -> int | None:
    """The offset before which readers see what there is; None if the log holds nothing back."""
    return _offset_in(folder / _VISIBLE_FILE)


def check_end(folder: Path, ended: int | None, after: int) -> None:
    """Refuse an end that lies before records that are there; `after` is the offset behind the last one."""
    if ended is not None and ended < after:
        raise _bad_mark(folder / _ENDED_FILE, f"it says {ended}, and there are records up to {after - 1}")


def _mark(offset: int) -> bytes:
    number = b"%d" % offset
    return b"%b %08x" % (number, zlib.crc32(number))


def _offset_in(path: Path) -> int | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _bad_mark(path, reason_of(error)) from error
    number = content.partition(b" ")[0]
    if not number.isdigit() or content not in (_mark(int(number)), number):  # 0.1 wrote no check sum
        raise _bad_mark(path, f"it has {content[:40]!r}")
    return int(number)


def _bad_mark(path: Path, reason: str) -> LogError:
    return LogError(f"'{path}' is damaged ({reason}); remove the folder.")


def _check_that_batches_stand_alone(schema: pa.Schema) -> None:
    for field in schema:
        if _has_dictionary(field.type):
            # The message of a record batch holds only the codes: the dictionary would be a message of its own.
            raise LogError(
                f"Column '{field.name}' has the type {field.type}, but a results log holds plain values; "
                "cast it to the type of its dictionary first."
            )


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(number).type) for number in range(kind.num_fields))
