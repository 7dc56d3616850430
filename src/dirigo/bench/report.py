"""All benchmarks together: run them, and put the results into one report."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dirigo.bench import barrier, kernel, simulator
from dirigo.bench.barrier import BarrierCost, measure_barriers
from dirigo.bench.kernel import KernelCost, measure_kernel
from dirigo.bench.simulator import SimulatorCost, measure_simulator

Progress = Callable[[str], None]  # told what is being measured


@dataclass(frozen=True)
class Sizes:
    """How much is measured: by default enough for stable figures, in about fifteen seconds."""

    actors: tuple[int, ...] = kernel.ACTORS
    messages: int = kernel.MESSAGES
    rounds: int = barrier.ROUNDS
    emissions: int = simulator.EMISSIONS
    repeats: int = kernel.REPEATS


@dataclass(frozen=True)
class BenchReport:
    """Everything that was measured, and on which interpreter."""

    python: str
    kernel: KernelCost
    barriers: tuple[BarrierCost, ...]
    simulator: SimulatorCost

    def within_budget(self) -> bool:
        return self.kernel.within_budget() and self.simulator.within_budget()

    def to_json(self) -> str:
        content: dict[str, Any] = asdict(self)
        for cost, written in zip(self.kernel.costs, content["kernel"]["costs"], strict=True):
            written["kernel_us"] = cost.kernel_us
        content["kernel"]["among_idle"]["kernel_us"] = self.kernel.among_idle.kernel_us
        content["kernel"]["flatness"] = self.kernel.flatness
        content["kernel"]["spread"] = self.kernel.spread
        content["simulator"]["messages_per_s"] = self.simulator.messages_per_s
        content["within_budget"] = self.within_budget()
        return json.dumps(content, indent=2)


def run_all(progress: Progress | None = None, sizes: Sizes | None = None) -> BenchReport:
    """Run all benchmarks, one after the other."""
    tell, sizes = progress or _ignore, sizes or Sizes()
    tell("messages through the kernel")
    kernel_cost = measure_kernel(sizes.actors, sizes.messages, sizes.repeats)
    tell("barriers")
    barrier_costs = measure_barriers(rounds=sizes.rounds, repeats=sizes.repeats)
    tell("the simulator")
    simulator_cost = measure_simulator(sizes.emissions, sizes.repeats)
    return BenchReport(platform.python_version(), kernel_cost, barrier_costs, simulator_cost)


def _ignore(_: str) -> None:
    """Nobody wants to know."""
