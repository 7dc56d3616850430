"""The payloads of a flow's messages.

Regular ones are ``(port, batch)``, ``(port, [(slot, batch), ...])``, or a port and bad rows. Critical ones are watermarks,
what a user's function sends, and what an operator asked for itself.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa


class Own(msgspec.Struct, frozen=True):
    """What an operator wants to be called with when it is alone: as soon as possible, or when a timer is due.

    Anything else that runs alone at an actor was started by a strategy, and does not concern the operator.
    """

    payload: Any


def rows_of(payload: Any) -> int:
    """How many rows a message carries; the largest of several tables counts, and whatever else it may be counts as one."""
    if type(payload) is not tuple or len(payload) != 2:
        return 1
    content = payload[1]
    if isinstance(content, pa.RecordBatch):
        return int(content.num_rows)
    if type(content) is list and content and all(_is_slot(each) for each in content):
        return max(int(batch.num_rows) for _, batch in content)
    return 1


def _is_slot(part: Any) -> bool:
    return type(part) is tuple and len(part) == 2 and isinstance(part[1], pa.RecordBatch)
