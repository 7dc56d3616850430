"""A dataflow as the user wrote it: nodes and the streams between them. It knows nothing of actors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, get_args

from dirigo.flow.api.duration import Duration, milliseconds, seconds
from dirigo.flow.api.slo import SLO
from dirigo.flow.errors import FlowError
from dirigo.flow.exchange.emitter import MAIN
from dirigo.flow.operators.operator import Operator
from dirigo.flow.operators.pass_through import PassThrough
from dirigo.flow.operators.source_rows import SourceRows
from dirigo.flow.operators.steps import Step
from dirigo.flow.plan.emulation import Work
from dirigo.flow.rows.bad_rows import ERRORS, OnError
from dirigo.flow.sources.source import Source

if TYPE_CHECKING:
    from dirigo.flow.api.stream import Stream

_NAME = re.compile(r"[\w.+-]+", re.ASCII)
_NAME_LETTERS_MOST = 200
LABELS_MOST = 32
_LABEL_LETTERS_MOST = 200
ROW_BYTES_MAX = 1 << 20


class StreamOutput(NamedTuple):
    """One output of a node."""

    node: Node
    name: str = MAIN


class Node:
    """An operator or a step, and what it reads."""

    def __init__(self, work: Operator | Step, inputs: list[StreamOutput]) -> None:
        self.work = work
        self.inputs = inputs
        self.lessees_max: int | None = None  # at so many other workers each of its actors may run; None: nothing was said

    @property
    def name(self) -> str:
        return self.work.name


class SourceNode(Node):
    """Where rows come from."""

    def __init__(self, work: SourceRows, source: Source, splits: int) -> None:
        super().__init__(work, [])
        self.source = source
        self.splits = splits


class Dataflow:
    """A graph of operators with a name and an objective. Sources go in, streams come out of every call, sinks end them."""

    def __init__(
        self,
        name: str,
        *,
        slo: SLO | None = None,
        partitions: int = 4,
        splits: int = 1,
        on_error: OnError = "fail",
        row_bytes_max: int = ROW_BYTES_MAX,
        watermark_every: Duration = "100ms",
        combines_early: bool = True,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """``partitions``: into how many actors a keyed operator is cut; load is spread further without any tuning.

        ``splits``: how many readers a source has, if it can be split and does not say otherwise.

        ``combines_early``: whether what is done by window or by key (aggregate, top, reduce and apply; also over sessions,
        windows of processing time and the whole stream) makes partial results where rows come from. When False, rows travel
        as they are to the actor of their key, which makes them: results are the same, but a key with many rows is work for
        its actor. It changes nothing for joins, deduplicate and functions of your own, which get their rows whole anyway.

        ``labels``: short texts by name, such as the team that the job belongs to. Scheduling policies can go by them
        (``context.job(message).labels``), and ``dirigo jobs`` shows them; Dirigo itself makes nothing of them.
        """
        check_name(name, "a dataflow needs a name")
        if on_error not in get_args(OnError):
            raise FlowError(f"dataflow '{name}': on_error is 'fail' or 'side_output', not {on_error!r}.")
        check_count(partitions, f"dataflow '{name}': partitions")
        check_count(splits, f"dataflow '{name}': splits")
        check_count(row_bytes_max, f"dataflow '{name}': row_bytes_max")
        _check_flag(combines_early, f"dataflow '{name}': combines_early")
        _check_slo(slo, name)
        self.name = name
        self.slo = slo
        self.partitions = partitions
        self.splits = splits
        self.on_error: OnError = on_error
        self.row_bytes_max = row_bytes_max
        self.watermark_every_ms = milliseconds(watermark_every, f"dataflow '{name}': watermark_every")
        self.combines_early = combines_early
        self.labels = checked_labels({} if labels is None else labels, f"dataflow '{name}'")
        self.emulated: dict[Node, Work] = {}
        self.nodes: list[Node] = []
        self.errors_node: Node | None = None
        self._counts: Counter[str] = Counter()  # of automatic names, by kind
        self._given: set[str] = set()  # names that the user chose
        self._automatic: dict[str, str] = {}  # names that were made, and of which kind

    def source(self, source: Source, *, name: str | None = None, splits: int | None = None) -> Stream:
        """Read from a source; ``splits`` of it at once, if it can be split."""
        from dirigo.flow.api.stream import Stream  # streams make nodes, and a flow makes streams

        if not isinstance(source, Source):
            raise FlowError(
                f"dataflow '{self.name}': source() takes a source such as from_iterable(rows) or from_parquet(path), "
                f"not {source!r}."
            )
        splits = self.splits if splits is None else splits
        check_count(splits, f"dataflow '{self.name}': splits of a source")
        work = SourceRows(self._name_of_source(source, name), source, self.row_bytes_max)
        return Stream(self, StreamOutput(self.add(SourceNode(work, source, splits))))

    @property
    def errors(self) -> Stream:
        """The rows that operators could not handle, as (operator, error, row), when ``on_error="side_output"``."""
        from dirigo.flow.api.stream import Stream

        if self.on_error != "side_output":
            raise FlowError(
                f"dataflow '{self.name}' fails on the first bad row; "
                "make it with on_error='side_output' to have bad rows as a stream."
            )
        if self.errors_node is None:
            shape = Operator("", ERRORS, None)
            self.errors_node = self.add(Node(PassThrough(self.name_for("flow.errors", None), shape, "errors"), []))
        return Stream(self, StreamOutput(self.errors_node))

    def emulate(self, operator: str, *, per_message: Duration = "0ms", per_row: Duration = "0us", cpu: bool = False) -> None:
        """Pretend that an operator, given by its name, has more to do than it has: for experiments and demos only.

        Every regular message that it executes takes longer by ``per_message`` and, for each row of the message as it
        arrives, by ``per_row``; watermarks and other critical messages do not. The worker sleeps for that time, once per
        message, or with ``cpu=True`` really computes. In the simulator it is virtual time. Results stay as they are. The
        last call for an operator counts.
        """
        what = f"emulated work of '{operator}'"
        _check_flag(cpu, f"{what}: cpu")
        work = Work(seconds(per_message, f"{what}: per_message"), seconds(per_row, f"{what}: per_row"), cpu)
        for node in self.nodes:
            if node.name == operator:
                self.emulated[node] = work
                return
        names = ", ".join(node.name for node in self.nodes) or "none yet"
        raise FlowError(f"dataflow '{self.name}' has no operator '{operator}' whose work could be emulated; it has {names}.")

    def __repr__(self) -> str:
        return f"<dataflow '{self.name}' of {len(self.nodes)} operators>"

    def _repr_html_(self) -> str:
        """In a notebook: its objective and its graph."""
        from dirigo.flow.notebook.flows import dataflow_html  # a drawing is made of a plan, and a plan of a flow

        return dataflow_html(self)

    # --- for streams ---------------------------------------------------------------------------------------------------

    def add(self, node: Node) -> Node:
        self.nodes.append(node)
        return node

    def name_for(self, kind: str, wanted: str | None) -> str:
        """A name of its own for a node: the one that was asked for, or one made from its kind.

        A name that was made gives way to one that is asked for later, and no other name changes.
        """
        if wanted is None:
            return self._automatic_name(kind)
        check_name(wanted, "an operator needs a name")
        if wanted in self._given:
            raise FlowError(
                f"dataflow '{self.name}': there are two operators with the name '{wanted}'; choose another for one of them."
            )
        self._given.add(wanted)
        if wanted in self._automatic:
            made = self._automatic.pop(wanted)
            for node in self.nodes:
                if node.name == wanted:
                    node.work.name = self._automatic_name(made)
        return wanted

    def _name_of_source(self, source: Source, wanted: str | None) -> str:
        """That of the source, if the user gave it one that is still free."""
        own = _plain_name(source.name)
        is_given = source.name != source.default_name and own not in self._given
        return self.name_for(source.name, own if wanted is None and is_given else wanted)

    def _automatic_name(self, kind: str) -> str:
        base = _plain_name(kind)
        while True:
            self._counts[base] += 1
            name = base if self._counts[base] == 1 else f"{base}_{self._counts[base]}"
            if name not in self._given and name not in self._automatic:
                self._automatic[name] = kind
                return name


def _plain_name(text: str) -> str:
    """The text as a name: with other letters only where a name may not have them."""
    return re.sub(r"[^\w.+-]+", "_", text, flags=re.ASCII)[:_NAME_LETTERS_MOST]


def check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FlowError(f"{what} of letters, digits and . _ + - only, not {name!r}.")
    if len(name) > _NAME_LETTERS_MOST:
        raise FlowError(f"{what} of at most {_NAME_LETTERS_MOST} letters, not {len(name)}.")


def checked_labels(labels: object, what: str) -> dict[str, str]:
    """A copy of labels that are few, and texts that can be shown anywhere; ``what`` has them."""
    if not isinstance(labels, Mapping):
        raise FlowError(f"{what}: labels are texts by name, such as labels={{'team': 'ads'}}, not {labels!r}.")
    if len(labels) > LABELS_MOST:
        raise FlowError(f"{what}: there can be {LABELS_MOST} labels, not {len(labels)}.")
    for name, value in labels.items():
        check_name(name, f"{what}: a label needs a name")
        if not isinstance(value, str) or not value.isprintable() or len(value) > _LABEL_LETTERS_MOST:
            raise FlowError(
                f"{what}: the label '{name}' has to be a text on one line, of at most {_LABEL_LETTERS_MOST} letters, "
                f"not {value!r}."
            )
    return dict(labels)


def check_count(value: object, what: str, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise FlowError(f"{what} must be a whole number, {least} or more, not {value!r}.")


def _check_flag(value: object, what: str) -> None:
    if not isinstance(value, bool):
        raise FlowError(f"{what} is True or False, not {value!r}.")


def _check_slo(slo: object, name: str) -> None:
    if slo is not None and not isinstance(slo, SLO):
        raise FlowError(f"dataflow '{name}': slo takes an objective such as SLO(latency='200ms'), not {slo!r}.")


def live_nodes(flow: Dataflow) -> list[Node]:
    """The nodes that lead to a sink, each after its inputs. Refuses a flow without sinks, and a cycle."""
    from dirigo.flow.operators.sink_rows import SinkRows

    sinks = [node for node in flow.nodes if isinstance(node.work, SinkRows)]
    if not sinks:
        raise FlowError(
            f"dataflow '{flow.name}' has no sink, so nobody would see its results; end a stream with .sink(...)."
        )
    done: list[Node] = []
    for sink in sinks:
        _visit(sink, done, [])
    order = {node: position for position, node in enumerate(flow.nodes)}
    finished = _sorted_by_inputs(done, order)
    if flow.on_error == "side_output" and (flow.errors_node is None or flow.errors_node not in finished):
        raise FlowError(
            f"dataflow '{flow.name}' keeps bad rows apart, but nobody takes them; "
            "add flow.errors.sink(...), or use on_error='fail'."
        )
    return _errors_last(finished, flow.errors_node)


def _errors_last(nodes: list[Node], errors: Node | None) -> list[Node]:
    """Everybody may send to the stream of errors, so it and what is made of it come after all others."""
    after: set[Node] = set()
    for node in nodes:
        if node is errors or any(upstream.node in after for upstream in node.inputs):
            after.add(node)
    return [node for node in nodes if node not in after] + [node for node in nodes if node in after]


def _visit(node: Node, done: list[Node], path: list[Node]) -> None:
    if node in done:
        return
    if node in path:
        cycle = [*path[path.index(node) :], node]
        names = " -> ".join(each.name for each in reversed(cycle))
        raise FlowError(f"the graph has a cycle: {names}; do not add to a union what is made from it.")
    path.append(node)
    for upstream in node.inputs:
        _visit(upstream.node, done, path)
    path.pop()
    done.append(node)


def _sorted_by_inputs(done: list[Node], order: dict[Node, int]) -> list[Node]:
    """As visited, which is inputs first; ``order`` keeps independent branches as they were written."""
    waiting = sorted(done, key=order.__getitem__)
    finished: list[Node] = []
    while waiting:
        for node in waiting:
            if all(upstream.node in finished for upstream in node.inputs):
                finished.append(node)
                waiting.remove(node)
                break
    return finished


def consumers(nodes: list[Node], output: StreamOutput) -> Iterator[tuple[Node, int]]:
    """Who reads an output, and as which of its inputs."""
    for node in nodes:
        for port, upstream in enumerate(node.inputs):
            if upstream == output:
                yield node, port
