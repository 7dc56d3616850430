"""Large frames travel in pieces, so that a socket which listens can refuse large frames from strangers.

The socket library reads a frame whole before it knows who has sent it, and has one bound for frames of strangers and of
friends. So the bound is small, and whoever sends to a socket that listens cuts what is larger: a frame of exactly
``PIECE_BYTES`` goes on in the next one. All pieces of a message come together, or none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dirigo.runtime.transport.payload import Frame

PIECE_BYTES: Final = 1 << 17
FRAME_BYTES_MOST: Final = PIECE_BYTES + 64  # with what encryption adds


def cut(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Frames as they are sent to a socket that listens. Nearly always they are small, and stay as they are."""
    for frame in frames:
        if len(frame) >= PIECE_BYTES:
            return [piece for each in frames for piece in _pieces(each)]
    return frames


def _pieces(frame: Frame) -> list[Frame]:
    if len(frame) < PIECE_BYTES:
        return [frame]
    view = memoryview(frame)
    # A frame that ends with a whole piece is followed by an empty one.
    return [view[begin : begin + PIECE_BYTES] for begin in range(0, len(frame) + 1, PIECE_BYTES)]


def joined(frames: list[bytes]) -> list[bytes]:
    """Frames as they were before they were cut."""
    for frame in frames:
        if len(frame) == PIECE_BYTES:
            return _joined(frames)
    return frames


def _joined(frames: list[bytes]) -> list[bytes]:
    whole: list[bytes] = []
    pieces: list[bytes] = []
    for frame in frames:
        pieces.append(frame)
        if len(frame) != PIECE_BYTES:
            whole.append(frame if len(pieces) == 1 else b"".join(pieces))
            pieces = []
    if pieces:  # from somebody who does not cut as we do
        whole.append(b"".join(pieces))
    return whole
