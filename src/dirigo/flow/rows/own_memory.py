"""Rows that have their memory to themselves, so that what they take is what they hold.

A slice of a batch is cheap, and keeps the whole batch in memory for as long as it lives. What waits in a queue or stays in a
state lives long, and is counted: a slice would count for, and hold, many times its own size. Counting only the part that it
shows would be worse, since the rest is not free either. So whoever cuts rows up for others copies the pieces; that takes a
few microseconds, less than to find out how much a slice shows.
"""

from __future__ import annotations

import pyarrow as pa

_MORE = 2  # times what the rows need may be held without a copy: buffers are allocated with some room


def cut(batch: pa.RecordBatch, start: int, rows: int) -> pa.RecordBatch:
    """Some rows of a batch, in memory of their own."""
    return pa.concat_batches([batch.slice(start, rows)])


def owned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of unknown origin, copied if it is a small part of what it keeps in memory."""
    if batch.get_total_buffer_size() <= _MORE * batch.nbytes:
        return batch
    return pa.concat_batches([batch])
