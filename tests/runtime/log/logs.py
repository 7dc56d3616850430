"""Results logs as tests make them, and what becomes of their files."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from dirigo.runtime.results.log import ResultLog, StoredLog

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])


def frame_of(numbers: Sequence[int]) -> bytes:
    batch = pa.record_batch({"number": numbers, "text": [str(n) for n in numbers]}, schema=SCHEMA)
    frame: bytes = batch.serialize().to_pybytes()
    return frame


def read_all(log: ResultLog | StoredLog, offset: int, bytes_max: int) -> list[bytes]:
    frames: list[bytes] = []
    while piece := log.read(offset + len(frames), bytes_max):
        frames += piece
    return frames


def crash(log: ResultLog) -> None:
    """The process is gone: nothing was flushed or marked, the system closed the file."""
    log.close()


def log_of(folder: Path, frames: Sequence[bytes], *, segment_bytes: int = 1 << 20, is_ended: bool = False) -> list[Path]:
    """A log whose writer is gone; its files."""
    log = ResultLog(folder, SCHEMA, segment_bytes=segment_bytes)
    for frame in frames:
        log.append(frame, 1)
    if is_ended:
        log.end()
    crash(log)
    return sorted(folder.glob("*.frames"))


def overwrite(file: Path, begin: int, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(begin)
        opened.write(content)
