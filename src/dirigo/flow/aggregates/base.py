"""Owns what every aggregate has in common: what a user writes (Aggregate) and what does the work once the columns are known.

Work is done in three steps so that it can be spread: `reduce` turns input rows into partial results, `combine` merges
partial results in any order and any number of times, and `finish` turns them into the value that the user sees. A
GroupSummary keeps one partial row per group, a Listing several.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import ClassVar, Self

import pyarrow as pa

from dirigo.flow.aggregates.columns.groups import Codes, Groups
from dirigo.flow.aggregates.columns.order_keys import is_orderable
from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.expression import Expression, type_of
from dirigo.flow.expressions.node import alias_of
from dirigo.flow.rows.schema import require_columns

Argument = str | Expression
Parts = list[pa.Array]


class GroupSummary(ABC):
    """An aggregate whose partial result is one row per group. A group without rows gets null, or a count of 0."""

    part_fields: Sequence[tuple[str, pa.DataType]]
    output_type: pa.DataType

    @abstractmethod
    def reduce(self, inputs: Sequence[pa.Array], groups: Groups) -> Parts:
        """The parts of each group from the argument columns of input rows."""

    @abstractmethod
    def combine(self, parts: Sequence[pa.Array], groups: Groups) -> Parts:
        """The parts of each group from the parts of partial rows."""

    @abstractmethod
    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """The values, from one partial row per group."""


class Listing(ABC):
    """An aggregate whose partial result is several rows per group. Groups without rows have none."""

    part_fields: Sequence[tuple[str, pa.DataType]]
    output_type: pa.DataType
    bounded: ClassVar[bool] = False

    @abstractmethod
    def reduce(self, values: pa.Array, codes: Codes) -> tuple[Codes, Parts]:
        """The parts of partial rows, and the group of each, from the argument of input rows. No value is null."""

    @abstractmethod
    def combine(self, parts: Sequence[pa.Array], codes: Codes) -> tuple[Codes, Parts]:
        """Fewer partial rows with the same meaning."""

    @abstractmethod
    def finish(self, parts: Sequence[pa.Array], groups: Groups) -> pa.Array:
        """The value of each group, from partial rows. They need not be combined: several may be of one value."""


class Aggregate(ABC):
    """One value per group, as a user writes it: over which argument, and of which rows."""

    function: ClassVar[str]

    def __init__(self, argument: Argument | None, where: Expression | None) -> None:
        if argument is not None and not isinstance(argument, str | Expression):
            raise FlowError(f"{self.function}: takes a column name such as 'price' or an expression, not {argument!r}.")
        if where is not None and not isinstance(where, Expression):
            raise FlowError(f"{self.function}: where takes an expression such as col('price') > 100, not {where!r}.")
        self.argument = argument
        self.where = where
        self.name: str | None = None  # of its column, if it was given one

    def alias(self, name: str) -> Self:
        """The same aggregate under a name: what its column is called."""
        named = copy(self)
        named.name = alias_of(str(self), name)
        return named

    def __str__(self) -> str:
        written = [] if self.argument is None else [str(self.argument)]
        written += self._options()
        if self.where is not None:
            written.append(f"where={self.where}")
        return f"{self.function}({', '.join(written)})"

    __repr__ = __str__

    def _options(self) -> list[str]:
        return []

    def arguments(self, time: str | None) -> list[Argument]:
        """What is to be evaluated for each batch, in the order in which `reduce` expects it."""
        del time
        return [] if self.argument is None else [self.argument]

    @abstractmethod
    def bind(self, schema: pa.Schema, time: str | None, what: str) -> GroupSummary | Listing:
        """What does the work on rows of this schema; FlowError, opened by `what`, if it cannot."""

    def check_where(self, schema: pa.Schema, what: str) -> None:
        """FlowError if `where` is not a condition on rows of this schema."""
        if self.where is None:
            return
        kind = type_of(self.where, schema, what)
        if not pa.types.is_boolean(kind):
            raise FlowError(f"{what}: where must be true or false for a row, but {self.where} is of type {kind}.")

    def _argument_type(self, schema: pa.Schema, what: str) -> pa.DataType:
        assert self.argument is not None
        return argument_type(self.argument, schema, what)

    def _number_type(self, schema: pa.Schema, what: str) -> pa.DataType:
        kind = self._argument_type(schema, what)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind)):
            raise FlowError(f"{what}: {self.function} needs numbers, but {self.argument} is of type {kind}.")
        return kind

    def _orderable_type(self, schema: pa.Schema, what: str) -> pa.DataType:
        return orderable_type(self.argument or "", self.function, schema, what)


def orderable_type(argument: Argument, function: str, schema: pa.Schema, what: str) -> pa.DataType:
    """The type of an argument whose values are to be compared; FlowError if they cannot be."""
    kind = argument_type(argument, schema, what)
    if not is_orderable(kind):
        raise FlowError(f"{what}: {function} needs values that have an order, but {argument} is of type {kind}.")
    return kind


def argument_type(argument: Argument, schema: pa.Schema, what: str) -> pa.DataType:
    """The type that `evaluate_argument` gives."""
    if isinstance(argument, str):
        require_columns(schema, [argument], what)
        return plain_type(schema.field(argument).type)
    return plain_type(type_of(argument, schema, what))


def evaluate_argument(argument: Argument, batch: pa.RecordBatch) -> pa.Array:
    """The values of an argument for each row."""
    return plain(batch.column(argument) if isinstance(argument, str) else argument.evaluate(batch))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, for dictionaries: each batch has its own, so partial results do without."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain(values: pa.Array) -> pa.Array:
    """The values without their dictionary, if they have one."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def is_positive_int(number: object) -> bool:
    """Whether a user gave a whole number from 1 on; True is not meant as one."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def is_finite_number(number: object) -> bool:
    """Whether a user gave a number that is not infinite and not NaN."""
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
