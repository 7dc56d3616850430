"""All benchmarks together: run them, and put the results into one report."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dirigo_lab.bench import barrier, generator, kernel, simulator, strategies
from dirigo_lab.bench.barrier import BarrierCost, measure_barriers
from dirigo_lab.bench.flows import flow, keyed_state, keys, long_run
from dirigo_lab.bench.flows.flow import FlowCost, measure_flows
from dirigo_lab.bench.flows.keyed_state import KeyedStateCosts, measure_keyed_state
from dirigo_lab.bench.flows.keys import KeyCosts, measure_keys
from dirigo_lab.bench.flows.limits import LimitCost, measure_limits, missing_engines
from dirigo_lab.bench.flows.long_run import LongRun, measure_long_runs
from dirigo_lab.bench.generator import GeneratorCost, measure_generator
from dirigo_lab.bench.kernel import KernelCost, measure_kernel
from dirigo_lab.bench.simulator import SimulatorCost, measure_simulator
from dirigo_lab.bench.strategies import StrategyCosts, measure_strategies

Progress = Callable[[str], None]  # told what is being measured


@dataclass(frozen=True)
class Sizes:
    """How much is measured: by default enough for stable figures, in about a minute."""

    actors: tuple[int, ...] = kernel.ACTORS
    messages: int = kernel.MESSAGES
    rounds: int = barrier.ROUNDS
    queued: tuple[int, ...] = strategies.QUEUED
    strategy_messages: int = strategies.MESSAGES
    strategy_repeats: int = strategies.REPEATS
    emissions: int = simulator.EMISSIONS
    repeats: int = kernel.REPEATS
    generated_events: int = generator.EVENTS
    flow_events: int = flow.EVENTS
    row_form_events: int = flow.ROW_FORM_EVENTS
    flow_repeats: int = flow.REPEATS
    marks: tuple[int, ...] = long_run.MARKS
    key_counts: tuple[int, ...] = keys.KEYS
    key_events: int = keys.EVENTS
    keyed_state_events: int = keyed_state.EVENTS
    keyed_state_peers: tuple[str, ...] = keyed_state.PEERS


QUICK = Sizes(
    messages=10_000,
    rounds=300,
    strategy_messages=4_000,
    strategy_repeats=3,
    emissions=5_000,
    repeats=3,
    generated_events=400_000,
    flow_events=400_000,
    row_form_events=50_000,
    flow_repeats=3,
    marks=(1_000_000, 3_000_000),
    key_events=1_000_000,
    keyed_state_events=400_000,
    keyed_state_peers=("bytewax",),
)


@dataclass(frozen=True)
class BenchReport:
    """Everything that was measured, and on which interpreter."""

    python: str
    kernel: KernelCost
    barriers: tuple[BarrierCost, ...]
    strategies: StrategyCosts
    simulator: SimulatorCost
    generator: GeneratorCost
    flows: tuple[FlowCost, ...]
    limits: tuple[LimitCost, ...]
    missing: tuple[str, ...]  # engines that could not be measured
    long_runs: tuple[LongRun, ...]
    keys: KeyCosts
    keyed_state: KeyedStateCosts

    def over_budget(self) -> tuple[str, ...]:
        """What is slower or larger than it may be."""
        verdicts = [
            ("messages", self.kernel.within_budget()),
            *((f"the strategy {each.strategy}", each.within_budget()) for each in self.strategies.costs),
            ("the simulator", self.simulator.within_budget()),
            ("the generator", self.generator.within_budget()),
            *((each.query, each.within_budget()) for each in self.flows),
            *((f"{each.query}, long run", each.within_budget()) for each in self.long_runs),
            ("many keys", self.keys.within_budget()),
            ("a state per key", self.keyed_state.within_budget()),
        ]
        return tuple(name for name, within in verdicts if not within)

    def within_budget(self) -> bool:
        return not self.over_budget()

    def to_json(self) -> str:
        content: dict[str, Any] = asdict(self)
        for cost, written in zip(self.kernel.costs, content["kernel"]["costs"], strict=True):
            written["kernel_us"] = cost.kernel_us
        content["kernel"]["among_idle"]["kernel_us"] = self.kernel.among_idle.kernel_us
        content["kernel"]["flatness"] = self.kernel.flatness
        content["kernel"]["spread"] = self.kernel.spread
        for strategy_cost, written in zip(self.strategies.costs, content["strategies"]["costs"], strict=True):
            written["flatness"] = strategy_cost.flatness
        content["simulator"]["messages_per_s"] = self.simulator.messages_per_s
        content["generator"]["events_per_s"] = self.generator.events_per_s
        for flow_cost, written in zip(self.flows, content["flows"], strict=True):
            written["bids_per_s"] = flow_cost.bids_per_s
        for limit, written in zip(self.limits, content["limits"], strict=True):
            written["bids_per_s"] = limit.bids_per_s
            written["ratio"] = limit.ratio
        for run, written in zip(self.long_runs, content["long_runs"], strict=True):
            written["cost_growth"] = run.cost_growth
            written["state_growth"] = run.state_growth
            written["peak_growth"] = run.peak_growth
        content["keys"]["flatness"] = self.keys.flatness
        content["keyed_state"]["flatness"] = {form: self.keyed_state.flatness(form) for form in self.keyed_state.forms}
        content["over_budget"] = self.over_budget()
        content["within_budget"] = self.within_budget()
        return json.dumps(content, indent=2)


def run_all(progress: Progress | None = None, sizes: Sizes | None = None) -> BenchReport:
    """Run all benchmarks, one after the other."""
    tell, sizes = progress or _ignore, sizes or Sizes()
    tell("messages through the kernel")
    kernel_cost = measure_kernel(sizes.actors, sizes.messages, sizes.repeats)
    tell("barriers")
    barrier_costs = measure_barriers(rounds=sizes.rounds, repeats=sizes.repeats)
    tell("strategies")
    strategy_costs = measure_strategies(sizes.queued, sizes.strategy_messages, sizes.strategy_repeats)
    tell("the simulator")
    simulator_cost = measure_simulator(sizes.emissions, sizes.repeats)
    tell("the generator")
    generator_cost = measure_generator(sizes.generated_events, sizes.flow_repeats)
    tell("flows")
    flow_costs = measure_flows(sizes.flow_events, sizes.row_form_events, sizes.flow_repeats)
    tell("batch queries over the same bids")
    limit_costs = measure_limits(sizes.flow_events, sizes.flow_repeats)
    tell("few and many keys")
    key_costs = measure_keys(sizes.key_counts, sizes.key_events, sizes.flow_repeats)
    tell("a state per key")
    keyed_costs = measure_keyed_state(
        sizes.key_counts, sizes.keyed_state_events, sizes.flow_repeats, sizes.keyed_state_peers
    )
    tell("long runs")
    long_runs = measure_long_runs(sizes.marks)
    return BenchReport(
        python=platform.python_version(),
        kernel=kernel_cost,
        barriers=barrier_costs,
        strategies=strategy_costs,
        simulator=simulator_cost,
        generator=generator_cost,
        flows=flow_costs,
        limits=limit_costs,
        missing=missing_engines(),
        long_runs=long_runs,
        keys=key_costs,
        keyed_state=keyed_costs,
    )


def _ignore(_: str) -> None:
    """Nobody wants to know."""
