"""Random flows: sources and operators drawn one after the other, each on one of the latest streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import dirigo as dg
from dirigo.flow.api.dataflow import live_nodes
from flow.random_flows import join_operators, row_operators, window_operators
from flow.random_flows.made import Drawing, Made
from flow.random_flows.sources import random_source

Operator = Callable[[Drawing, Made], list[Made]]

# How often each is drawn, compared with the others. What keeps state, and has more ways to go wrong, comes more often.
OPERATORS: dict[Operator, int] = {
    row_operators.filter_by_expression: 1,
    row_operators.filter_by_function: 1,
    row_operators.with_columns: 1,
    row_operators.rename_time: 1,
    row_operators.map_rows: 1,
    row_operators.flat_map: 1,
    row_operators.split: 1,
    row_operators.union: 1,
    row_operators.join_table: 1,
    row_operators.deduplicate: 1,
    row_operators.aggregate_whole: 1,
    row_operators.aggregate_with_updates: 1,
    window_operators.aggregate_windows: 4,
    window_operators.apply_to_windows: 1,
    window_operators.top_of_windows: 1,
    window_operators.reduce_windows: 1,
    window_operators.aggregate_sessions: 3,
    join_operators.join_for_ever: 1,
    join_operators.join_within_interval: 3,
    join_operators.join_windows: 4,
}

_ROWS_MAX = 2_000  # more would only take longer
_LATEST = 3  # streams that the next operator may stand on
_ATTEMPTS = 20


@dataclass
class RandomFlow:
    """A flow, what its sinks must come to, and what it was made of."""

    seed: int
    flow: dg.Dataflow
    expected: dict[str, Made] = field(default_factory=dict)  # by the name of the sink
    steps: list[str] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"the flow of seed {self.seed}, in {self.flow.partitions} partitions:", *self.steps])


class _Generator:
    def __init__(self, seed: int, combines_early: bool) -> None:
        self.rng = rng = Random(seed)
        self.pool: list[Made] = []
        watermark_every = rng.choice(["0ms", "100ms", "1s"])
        flow = dg.Dataflow(
            "random",
            partitions=rng.choice([1, 2, 4, 7]),
            watermark_every=watermark_every,
            combines_early=combines_early,
        )
        self.result = RandomFlow(seed, flow)

    def add_sources(self) -> None:
        base_ms = self.rng.choice([0, 0, 1_600_000_000_000])
        for number in range(self.rng.choice([1, 2, 2])):
            made = random_source(self.result.flow, self.rng, f"source{number}", base_ms)
            self._add(made, "source")

    def add_operator(self) -> None:
        for _ in range(_ATTEMPTS):
            (operator,) = self.rng.choices(list(OPERATORS), list(OPERATORS.values()))
            below = self.rng.choice(self.pool[-_LATEST:])
            made = operator(Drawing(self.rng, self.pool, len(self.pool)), below)
            if made and all(len(each.rows) <= _ROWS_MAX for each in made):
                from_where = f" of stream {Drawing(self.rng, self.pool, 0).number_of(below)}"
                for each in made:
                    each.stream.named(f"{operator.__name__}{len(self.pool)}")
                    self._add(each, operator.__name__ + from_where)
                self.result.operators.append(operator.__name__)
                return

    def add_sinks(self) -> None:
        """On every stream that would be lost otherwise, and on some of the others."""
        for number, made in reversed(list(enumerate(self.pool))):
            is_last = made is self.pool[-1]
            if is_last or self.rng.random() < 0.3 or made.stream.output.node not in live_nodes(self.result.flow):
                name = f"out{number}"
                made.stream.sink(dg.to_memory(name=name))
                self.result.expected[name] = made

    def _add(self, made: Made, what: str) -> None:
        self.result.steps.append(f"  stream {len(self.pool)}: {what}: {made.described}")
        self.pool.append(made)


def random_flow(seed: int, *, combines_early: bool = True) -> RandomFlow:
    """A flow of one or two sources and up to seven operators; the same for the same seed."""
    generator = _Generator(seed, combines_early)
    try:
        generator.add_sources()
        for _ in range(generator.rng.randrange(1, 8)):
            generator.add_operator()
        generator.add_sinks()
    except Exception as error:
        error.add_note(f"while an operator was added to {generator.result}")
        raise
    return generator.result
