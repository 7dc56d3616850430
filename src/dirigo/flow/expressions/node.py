"""Expressions: small trees over the columns of a batch, computed for all its rows at once."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from dirigo.flow.api.duration import Duration, format_milliseconds, positive_milliseconds
from dirigo.flow.errors import FlowError
from dirigo.flow.expressions import kernels
from dirigo.flow.expressions.patterns import keep_group
from dirigo.flow.expressions.plain_values import check_index, check_pattern, literal_text, literal_type, text_argument
from dirigo.flow.expressions.unfinished import Unfinished
from dirigo.flow.rows.schema import as_type, did_you_mean


class Binding(IntEnum):
    """How tightly the parts of an expression's text hold together, as in Python."""

    COMPARISON = 1
    OR = 2
    AND = 3
    SUM = 4
    PRODUCT = 5
    UNARY = 6
    ATOM = 7


class Expression:
    """A value for every row of a batch. Operators and methods build larger expressions; only `evaluate` computes.

    Nulls spread as in SQL: an operation on an unknown value gives an unknown value.
    """

    __slots__ = ("binding", "columns", "name")
    # Lets a numpy scalar on the left leave the operation to the expression on the right.
    __array_ufunc__: Final = None

    columns: frozenset[str]
    name: str | None  # What a column with these values may be called, if the expression suggests anything.
    binding: Binding

    def value(self, batch: pa.RecordBatch) -> Any:
        """An array of as many values as the batch has rows, or one scalar for all rows."""
        raise NotImplementedError

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """The values for all rows of the batch."""
        return broadcast(self.value(batch), batch.num_rows)

    def __repr__(self) -> str:
        return f"<{self}>"

    def __bool__(self) -> NoReturn:
        raise FlowError(
            f"The expression '{self}' has no single truth value; combine conditions with & | ~ and put each in parentheses, "
            "as in (col('a') > 1) & (col('b') < 2)."
        )

    def __iter__(self) -> NoReturn:
        raise FlowError(
            f"The expression '{self}' cannot be iterated; it stands for a whole column. Where a name is "
            "wanted, give the name of the column as text."
        )

    def __hash__(self) -> int:
        return id(self)

    if not TYPE_CHECKING:  # or a type checker would take any name for granted

        def __getattr__(self, name: str) -> Any:
            # Not shown: the expression itself. It may be half made, as when it is unpickled.
            hint = "" if name.startswith("__") else did_you_mean(name, set(dir(Expression)) - _NO_METHODS)
            raise AttributeError(f"an expression has no '{name}'{hint}")

    def __add__(self, other: Any) -> Expression:
        return _infix(kernels.add, self, "+", other, Binding.SUM)

    def __radd__(self, other: Any) -> Expression:
        return _infix(kernels.add, other, "+", self, Binding.SUM)

    def __sub__(self, other: Any) -> Expression:
        return _infix(kernels.subtract, self, "-", other, Binding.SUM)

    def __rsub__(self, other: Any) -> Expression:
        return _infix(kernels.subtract, other, "-", self, Binding.SUM)

    def __mul__(self, other: Any) -> Expression:
        return _infix(kernels.multiply, self, "*", other, Binding.PRODUCT)

    def __rmul__(self, other: Any) -> Expression:
        return _infix(kernels.multiply, other, "*", self, Binding.PRODUCT)

    def __truediv__(self, other: Any) -> Expression:
        return _infix(kernels.divide, self, "/", other, Binding.PRODUCT)

    def __rtruediv__(self, other: Any) -> Expression:
        return _infix(kernels.divide, other, "/", self, Binding.PRODUCT)

    def __mod__(self, other: Any) -> Expression:
        return _infix(kernels.modulo, self, "%", other, Binding.PRODUCT)

    def __rmod__(self, other: Any) -> Expression:
        return _infix(kernels.modulo, other, "%", self, Binding.PRODUCT)

    def __floordiv__(self, other: Any) -> Expression:
        return _infix(kernels.floor_divide, self, "//", other, Binding.PRODUCT)

    def __rfloordiv__(self, other: Any) -> Expression:
        return _infix(kernels.floor_divide, other, "//", self, Binding.PRODUCT)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _comparison(kernels.equal, self, "==", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return _comparison(kernels.not_equal, self, "!=", other)

    def __lt__(self, other: Any) -> Expression:
        return _comparison(kernels.less, self, "<", other)

    def __le__(self, other: Any) -> Expression:
        return _comparison(kernels.less_equal, self, "<=", other)

    def __gt__(self, other: Any) -> Expression:
        return _comparison(kernels.greater, self, ">", other)

    def __ge__(self, other: Any) -> Expression:
        return _comparison(kernels.greater_equal, self, ">=", other)

    def __and__(self, other: Any) -> Expression:
        return _infix(kernels.both, self, "&", other, Binding.AND)

    def __rand__(self, other: Any) -> Expression:
        return _infix(kernels.both, other, "&", self, Binding.AND)

    def __or__(self, other: Any) -> Expression:
        return _infix(kernels.either, self, "|", other, Binding.OR)

    def __ror__(self, other: Any) -> Expression:
        return _infix(kernels.either, other, "|", self, Binding.OR)

    def __invert__(self) -> Expression:
        return Call(kernels.invert, (self,), text=f"~{within(self, Binding.UNARY)}", binding=Binding.UNARY)

    def __neg__(self) -> Expression:
        return Call(kernels.negate, (self,), text=f"-{within(self, Binding.UNARY)}", binding=Binding.UNARY)

    def __abs__(self) -> Expression:
        return Call(kernels.absolute, (self,), text=f"abs({self})")

    def is_null(self) -> Expression:
        return _method(kernels.is_null, self, "is_null")

    def is_not_null(self) -> Expression:
        return _method(kernels.is_not_null, self, "is_not_null")

    def fill_null(self, replacement: Any) -> Expression:
        """The same values, with nulls replaced."""
        other = as_expression(replacement)
        return Call(kernels.fill_null, (self, other), text=_method_text(self, "fill_null", str(other)), name=self.name)

    def alias(self, name: str) -> Expression:
        """The same values under a name: what their column is called in `select`, `with_columns` and `key_by`."""
        return Alias(self, name)

    def cast(self, kind: Any) -> Expression:
        """The same values as another type: a pyarrow type, a Python type or an alias such as "int64"."""
        target = as_type(kind, f"cast of '{self}'")
        return Call(kernels.cast, (self,), (target,), text=_method_text(self, "cast", str(target)), name=self.name)

    def between(self, low: Any, high: Any) -> Expression:
        """Whether low <= value <= high."""
        first, last = as_expression(low), as_expression(high)
        return Call(kernels.between, (self, first, last), text=_method_text(self, "between", f"{first}, {last}"))

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Whether the value is one of these plain values."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise FlowError(f"is_in of '{self}': {values!r} is not a list of values; put it in brackets.")
        choices = [lit(value).value(None) for value in values]
        if any(not choice.is_valid for choice in choices):
            raise FlowError(f"is_in of '{self}': None is not a value to look for; add '| (...).is_null()' instead.")
        try:
            array = pa.array([choice.as_py() for choice in choices])
        except (pa.ArrowException, TypeError):
            raise FlowError(f"is_in of '{self}': the values are of different types; give values of one type.") from None
        shown = ", ".join(literal_text(choice.as_py()) for choice in choices)
        return Call(kernels.is_in, (self,), (array,), text=_method_text(self, "is_in", f"[{shown}]"))

    def lower(self) -> Expression:
        return _method(kernels.lower, self, "lower")

    def upper(self) -> Expression:
        return _method(kernels.upper, self, "upper")

    def length(self) -> Expression:
        """The number of characters of a text, bytes of a binary value or elements of a list."""
        return _method(kernels.length, self, "length")

    def contains(self, part: str) -> Expression:
        return _method(kernels.contains, self, "contains", text_argument(part, "contains"))

    def starts_with(self, part: str) -> Expression:
        return _method(kernels.starts_with, self, "starts_with", text_argument(part, "starts_with"))

    def ends_with(self, part: str) -> Expression:
        return _method(kernels.ends_with, self, "ends_with", text_argument(part, "ends_with"))

    def matches(self, pattern: str) -> Expression:
        """Whether the regular expression (RE2) is found anywhere in the text."""
        check_pattern(pattern, "matches")
        return _method(kernels.matches, self, "matches", pattern)

    def extract(self, pattern: str, group: int = 0) -> Expression:
        """What a group of the regular expression (RE2) matched first; null without a match. Group 0 is the whole match."""
        check_pattern(pattern, "extract")
        check_index(group, "extract", "group")
        only = keep_group(pattern, group)
        return Call(kernels.extract, (self,), (only,), text=_method_text(self, "extract", f"{pattern!r}, {group}"))

    def split_part(self, separator: str, index: int) -> Expression:
        """The part of that number, counted from 0, between separators; null if there are not so many."""
        if not text_argument(separator, "split_part"):
            raise FlowError("split_part: the separator is empty; give at least one character.")
        check_index(index, "split_part", "index")
        return _method(kernels.split_part, self, "split_part", separator, index)

    def count_of(self, part: str) -> Expression:
        """How often the part occurs in the text, without overlaps."""
        if not text_argument(part, "count_of"):
            raise FlowError("count_of: the text to count is empty; give at least one character.")
        return _method(kernels.count_of, self, "count_of", part)

    def replace(self, old: str, new: str) -> Expression:
        """The text with every occurrence of `old` replaced."""
        if not text_argument(old, "replace"):
            raise FlowError("replace: the text to replace is empty; give at least one character.")
        return _method(kernels.replace, self, "replace", old, text_argument(new, "replace"))

    def hour(self) -> Expression:
        return _method(kernels.hour, self, "hour")

    def minute(self) -> Expression:
        return _method(kernels.minute, self, "minute")

    def year(self) -> Expression:
        return _method(kernels.year, self, "year")

    def day_of_week(self) -> Expression:
        """0 is Monday, 6 is Sunday."""
        return _method(kernels.day_of_week, self, "day_of_week")

    def format_time(self, text: str) -> Expression:
        """The time as text, as strftime writes it; %S are whole seconds."""
        return _method(kernels.format_time, self, "format_time", text_argument(text, "format_time"))

    def floor_time(self, duration: Duration) -> Expression:
        """The start of the interval of that length, counted from 1970-01-01 00:00 UTC, in which the time lies."""
        ms = positive_milliseconds(duration, f"floor_time of '{self}'")
        return Call(kernels.floor_time, (self,), (ms,), text=_method_text(self, "floor_time", repr(format_milliseconds(ms))))


# What an expression has for the operators, not for those who write one.
_NO_METHODS: Final = frozenset({"binding", "columns", "evaluate", "name", "value"})


class Column(Expression):
    """The values of one column."""

    __slots__ = ()
    name: str

    def __init__(self, name: str) -> None:
        self.name = name
        self.columns = frozenset((name,))
        self.binding = Binding.ATOM

    def value(self, batch: pa.RecordBatch) -> Any:
        return batch.column(self.name)

    def __str__(self) -> str:
        return self.name


def alias_of(what: str, name: object) -> str:
    """A name that was given by ``alias``."""
    if not isinstance(name, str) or not name:
        raise FlowError(f"alias of {what}: give the column a name, a text.")
    return name


class Alias(Expression):
    """The values of another expression under a name."""

    __slots__ = ("operands",)

    def __init__(self, operand: Expression, name: str) -> None:
        self.operands = (operand,)
        self.name = alias_of(f"'{operand}'", name)
        self.columns = operand.columns
        self.binding = operand.binding

    def value(self, batch: pa.RecordBatch) -> Any:
        return self.operands[0].value(batch)

    def __str__(self) -> str:
        return str(self.operands[0])


class Literal(Expression):
    """One value for all rows."""

    __slots__ = ("scalar", "text")

    def __init__(self, scalar: pa.Scalar, text: str) -> None:
        self.scalar = scalar
        self.text = text
        self.name = None
        self.columns = frozenset()
        self.binding = Binding.UNARY if text.startswith("-") else Binding.ATOM

    def value(self, batch: pa.RecordBatch) -> Any:  # noqa: ARG002
        return self.scalar

    def __str__(self) -> str:
        return self.text


class Call(Expression):
    """A kernel applied to the values of other expressions, followed by plain arguments."""

    __slots__ = ("arguments", "kernel", "operands", "text")

    def __init__(
        self,
        kernel: Callable[..., Any],
        operands: Sequence[Expression],
        arguments: Sequence[Any] = (),
        *,
        text: str,
        binding: Binding = Binding.ATOM,
        name: str | None = None,
    ) -> None:
        self.kernel = kernel
        self.operands = tuple(operands)
        self.arguments = tuple(arguments)
        self.text = text
        self.name = name
        self.binding = binding
        self.columns = frozenset[str]().union(*(operand.columns for operand in operands))

    def value(self, batch: pa.RecordBatch) -> Any:
        values = [operand.value(batch) for operand in self.operands]
        if self.columns or any(isinstance(value, pa.Array) for value in values):
            return self.kernel(*values, *self.arguments)
        # Only literals: kernels want an array, so they get one of a single row.
        return self.kernel(*(broadcast(value, 1) for value in values), *self.arguments)[0]

    def __str__(self) -> str:
        return self.text


def col(name: str) -> Expression:
    """The column of that name."""
    if not isinstance(name, str):
        raise FlowError(f"col: {name!r} is not the name of a column; give a str.")
    return Column(name)


def casts_of(expression: Expression) -> tuple[str, list[pa.DataType]] | None:
    """The one column whose values these are, and the types that they are cast to in turn; None for anything computed."""
    types: list[pa.DataType] = []
    while isinstance(expression, Alias) or (isinstance(expression, Call) and expression.kernel is kernels.cast):
        if isinstance(expression, Call):
            types.append(expression.arguments[0])
        (expression,) = expression.operands
    return (expression.name, types[::-1]) if isinstance(expression, Column) else None


def lit(value: Any) -> Expression:
    """One plain value for all rows."""
    if isinstance(value, Unfinished):
        raise FlowError(f"{value}.")
    if isinstance(value, pa.Scalar):
        return Literal(value, literal_text(value.as_py()))
    plain = value.item() if isinstance(value, numbers.Number) and hasattr(value, "item") else value
    try:
        return Literal(pa.scalar(plain, literal_type(plain)), literal_text(plain))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise FlowError(f"lit: {value!r} of type {type(value).__name__} has no column type; give a plain value.") from None


def as_expression(value: Any) -> Expression:
    """An expression as it is; anything else as a literal."""
    return value if isinstance(value, Expression) else lit(value)


def broadcast(value: Any, rows: int) -> pa.Array:
    """An array of that many values, whether the value is an array already or one scalar."""
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, rows)
    return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


def within(expression: Expression, binding: Binding) -> str:
    """The text of an operand, in parentheses if it would otherwise fall apart."""
    return str(expression) if expression.binding >= binding else f"({expression})"


def _infix(kernel: Callable[..., Any], left: Any, sign: str, right: Any, binding: Binding) -> Expression:
    first, second = as_expression(left), as_expression(right)
    # Comparisons do not chain; the others group from the left.
    first_binding = Binding(binding + 1) if binding is Binding.COMPARISON else binding
    text = f"{within(first, first_binding)} {sign} {within(second, Binding(binding + 1))}"
    return Call(kernel, (first, second), text=text, binding=binding)


def _comparison(kernel: Callable[..., Any], left: Expression, sign: str, right: Any) -> Expression:
    if right is None:
        raise FlowError(f"'{left} {sign} None' is never true; use .is_null() or .is_not_null().")
    return _infix(kernel, left, sign, right, Binding.COMPARISON)


def _method(kernel: Callable[..., Any], subject: Expression, method: str, *arguments: Any) -> Expression:
    shown = ", ".join(repr(argument) for argument in arguments)
    return Call(kernel, (subject,), arguments, text=_method_text(subject, method, shown))


def _method_text(subject: Expression, method: str, arguments: str) -> str:
    return f"{within(subject, Binding.ATOM)}.{method}({arguments})"
