"""Where a query's three streams come from: the generator, or files that were generated before. Queries cannot tell."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from dirigo.flow.api.duration import Duration
from dirigo.flow.sources import Source, from_parquet, paced
from dirigo.nexmark import sources
from dirigo.nexmark.generator import BASE_MS, RATE


class Tables(Protocol):
    """The three streams. A query names the columns that it needs, and the others are not even made; none means all."""

    def persons(self, *columns: str) -> Source: ...

    def auctions(self, *columns: str) -> Source: ...

    def bids(self, *columns: str) -> Source: ...


class GeneratedTables:
    """Events as they are generated; nothing is stored."""

    def __init__(
        self,
        events: int,
        rate: int = RATE,
        *,
        out_of_order_group: int = 1,
        block_events: int = sources.BLOCK_EVENTS,
        in_real_time: bool = False,
    ) -> None:
        """``in_real_time``: events are released in real time, as their times say, and not as fast as possible."""
        self.events = events
        self.rate = rate
        self._is_paced = in_real_time
        self._order = {"out_of_order_group": out_of_order_group, "block_events": block_events}

    def persons(self, *columns: str) -> Source:
        return self._released(sources.persons(self.events, self.rate, columns or None, **self._order))

    def auctions(self, *columns: str) -> Source:
        return self._released(sources.auctions(self.events, self.rate, columns or None, **self._order))

    def bids(self, *columns: str) -> Source:
        return self._released(sources.bids(self.events, self.rate, columns or None, **self._order))

    def _released(self, source: Source) -> Source:
        # Without a time column there is no pace to keep; such a stream is never the one that others wait for.
        return paced(source, begins_ms=BASE_MS) if self._is_paced and source.time is not None else source


class ParquetTables:
    """Events that ``dirigo nexmark generate`` wrote, in DIRECTORY/person, DIRECTORY/auction and DIRECTORY/bid."""

    def __init__(self, directory: Path, *, out_of_orderness: Duration = "0ms") -> None:
        self.directory = directory
        self.out_of_orderness: Duration = out_of_orderness

    def persons(self, *columns: str) -> Source:
        return self._table("person", columns)

    def auctions(self, *columns: str) -> Source:
        return self._table("auction", columns)

    def bids(self, *columns: str) -> Source:
        return self._table("bid", columns)

    def _table(self, kind: str, columns: tuple[str, ...]) -> Source:
        has_time = not columns or sources.TIME_COLUMN in columns
        return from_parquet(
            self.directory / kind,
            columns or None,
            time=sources.TIME_COLUMN if has_time else None,
            out_of_orderness=self.out_of_orderness,
            name=f"{kind}s",
        )
