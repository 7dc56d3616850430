"""The format "dirigo" of Spark: results and states of jobs are read from it, and rows for jobs are written to it."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from dirigo.errors import DirigoError
from dirigo.spark.results.reader import LogReader, LogStreamReader, result_schema
from dirigo.spark.results.state_reader import STATE, WITHOUT_SERVICE, StateReader, state_schema
from dirigo.spark.sessions import Reach


class FormatError(DirigoError):
    """The format "dirigo" is used in a way that cannot work. The message is one sentence that says what to do."""


def dirigo_format(reach: Reach) -> type[DataSource]:
    """The data source of a session, for ``spark.dataSource.register``.

    What it can reach, and with it the keys, are part of the pickled class: options and configuration are shown in the Spark
    UI. Spark's tasks get the keys of a reader or of a writer, whichever they need, and never those of a client. Without
    any access, only logs on disk can be read.
    """

    class DirigoDataSource(DataSource):  # type: ignore[misc]  # pyspark has no types that hold
        """Made here, not at the top of the file, so that it is pickled with its access and not by its name."""

        @classmethod
        def name(cls) -> str:
            return "dirigo"

        def schema(self) -> StructType:
            if STATE in self.options:
                return state_schema(self._reading(), self.options)
            return result_schema(self._reading(), self.options)

        def reader(self, schema: StructType) -> DataSourceReader:
            if STATE in self.options:
                return StateReader(self._reading(), self.options, schema)
            return LogReader(self._reading(), self.options, schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            if STATE in self.options:
                raise FormatError("A state is as of one moment, and no stream: read it with spark.read.")
            return LogStreamReader(self._reading(), self.options, schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            from dirigo.spark.input.writer import BatchWriter

            refuse_overwriting(overwrite, '.mode("append")')
            return BatchWriter(reach.access_for(self.options).writing, self.options, schema)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            from dirigo.spark.input.writer import StreamWriter

            refuse_overwriting(overwrite, '.outputMode("append") or "update"')
            return StreamWriter(reach.access_for(self.options).writing, self.options, schema)

        def _reading(self) -> object:
            if "path" in self.options or any(name in self.options for name in WITHOUT_SERVICE):
                return None
            return reach.access_for(self.options).reading

    return DirigoDataSource


def refuse_overwriting(overwrite: bool, instead: str) -> None:
    """What a job has taken in cannot be taken back."""
    if overwrite:
        raise FormatError(f"A job only takes in more rows, it cannot replace those that it had: write with {instead}.")
