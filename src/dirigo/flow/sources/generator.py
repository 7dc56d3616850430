"""Rows that a function makes out of their numbers: test data and load, the same in every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from dirigo.flow.api.duration import Duration
from dirigo.flow.errors import FlowError
from dirigo.flow.rows.schema import SchemaLike, as_schema
from dirigo.flow.sources.fit import fit_batch, fit_rows
from dirigo.flow.sources.source import Source, SourceBatch, Split, require_wanted

RowMaker = Callable[[int, int], pa.RecordBatch | Sequence[Mapping[str, Any]]]
_BLOCK_ROWS: Final = 4096


def from_generator(
    fn: RowMaker,
    schema: SchemaLike,
    total: int | None = None,
    *,
    block: int = _BLOCK_ROWS,
    time: str | None = None,
    out_of_orderness: Duration = "0ms",
    idle_after: Duration | None = None,
    name: str = "generator",
) -> GeneratorSource:
    """Rows 0, 1, 2, ... up to `total`, or without end.

    `fn(first, count)` makes the rows `first` to `first + count - 1`, always the same for the same numbers. It is called for
    blocks of `block` rows, which are dealt out to the splits in turn.
    """
    return GeneratorSource(
        fn, schema, total, block=block, time=time, out_of_orderness=out_of_orderness, idle_after=idle_after, name=name
    )


class GeneratorSource(Source):
    """Rows that a function makes out of their numbers."""

    default_name = "generator"

    def __init__(
        self,
        fn: RowMaker,
        schema: SchemaLike,
        total: int | None,
        *,
        block: int,
        time: str | None,
        out_of_orderness: Duration,
        idle_after: Duration | None,
        name: str,
    ) -> None:
        super().__init__(
            as_schema(schema, name),
            name=name,
            is_bounded=total is not None,
            time=time,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
        )
        if not callable(fn):
            raise FlowError(
                f"{name}: {type(fn).__name__} is no function; give one that takes the first number and the count."
            )
        if total is not None and total < 0:
            raise FlowError(f"{name}: total is {total}; give the number of rows, or None for rows without end.")
        if block < 1:
            raise FlowError(f"{name}: block is {block}; a block has at least 1 row.")
        self.total = total
        self.block = block
        self._fn = fn

    @property
    def is_replayable(self) -> bool:
        return True

    @property
    def position_form(self) -> str:
        return f"{super().position_form} in blocks of {self.block} rows"

    def splits(self, wanted: int) -> Sequence[Split]:
        require_wanted(wanted, self.name)
        blocks = wanted if self.total is None else -(-self.total // self.block)
        count = max(1, min(wanted, blocks))
        return [GeneratorSplit(self, self._fn, number, count) for number in range(count)]


class GeneratorSplit(Split):
    """Blocks k, k + n, k + 2n, ... of the rows. A block is made when needed, and given out in parts if too large.

    The position is the block at hand and how much of it was given, good rows and bad ones; it is made anew after a seek.
    """

    def __init__(self, source: GeneratorSource, fn: RowMaker, number: int, count: int) -> None:
        self._source = source
        self._fn = fn
        self._block = number
        self._stride = count
        self._given = (0, 0)  # of the block: good rows and bad ones
        self._rest: SourceBatch | None = None  # of the block, once it is made
        self.ended = not self._has_more()

    def read(self, rows_max: int) -> SourceBatch | None:
        if self.ended:
            return None
        if self._rest is None:
            self._rest = _without(self._make_block(), *self._given)
        rows, bad = self._rest.rows, self._rest.bad[:rows_max]
        given = SourceBatch(rows.slice(0, rows_max - len(bad)), bad)
        rest = _without(self._rest, given.rows.num_rows, len(bad))
        if rest.rows.num_rows or rest.bad:
            self._rest = rest
            self._given = self._given[0] + given.rows.num_rows, self._given[1] + len(bad)
        else:
            self._go_on_at(self._block + self._stride, 0, 0)
        return given

    def close(self) -> None:
        self.ended = True
        self._rest = None

    def position(self) -> list[int]:
        return [self._block, *self._given]

    def seek(self, position: list[int]) -> None:
        self._go_on_at(*position)

    def _go_on_at(self, block: int, rows_given: int, bad_given: int) -> None:
        self._block, self._given, self._rest = block, (rows_given, bad_given), None
        self.ended = not self._has_more()

    def _has_more(self) -> bool:
        return self._source.total is None or self._block * self._source.block < self._source.total

    def _make_block(self) -> SourceBatch:
        source = self._source
        first = self._block * source.block
        count = source.block if source.total is None else min(source.block, source.total - first)
        made = self._fn(first, count)
        found = made.num_rows if isinstance(made, pa.RecordBatch) else len(made)
        if found != count:
            raise FlowError(
                f"{source.name}: the function was asked for {count} rows from number {first} and made {found};"
                " let it make as many as it is asked for."
            )
        if isinstance(made, pa.RecordBatch):
            return fit_batch(made, source.schema, source.name, first)
        return fit_rows(made, source.schema, source.name, first)


def _without(batch: SourceBatch, rows: int, bad: int) -> SourceBatch:
    """What is left of a batch behind so many rows and bad rows."""
    return SourceBatch(batch.rows.slice(rows), batch.bad[bad:])
