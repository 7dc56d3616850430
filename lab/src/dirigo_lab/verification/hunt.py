"""Looks for an invariant that catches a mutant: in the worlds it should show in, then in the others, then at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dirigo.errors import DirigoError
from dirigo_lab.verification.checker import ViolationError
from dirigo_lab.verification.explorer import Exploration
from dirigo_lab.verification.mutants import Mutant, mutant_named
from dirigo_lab.verification.random.recovery import recover
from dirigo_lab.verification.random.run import run
from dirigo_lab.verification.snapshots.variants import explore
from dirigo_lab.verification.worlds import WORLDS, world_named

_STATES_MAX = 200_000
_SEEDS_MAX = 2_000


@dataclass
class Catch:
    """How a mutant fared."""

    name: str
    mistake: str
    caught: bool = False
    by: str = ""
    steps: int = 0
    accidents: list[str] = field(default_factory=list)  # it crashed here, which does not count

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "caught": self.caught, "by": self.by}


def explore_mutant(mutant: Mutant, world: str, states_max: int = _STATES_MAX) -> Exploration:
    with mutant.applied():
        return explore(world_named(world), states_max)


def hunt(_index: int, name: str) -> Catch:
    """Try worlds until one catches the mutant, then random runs."""
    mutant = mutant_named(name)
    catch = Catch(name, mutant.mistake)
    if mutant.needs_crash:
        with mutant.applied():
            _hunt_in_runs(catch, recover, "random run with crashes")
        return catch
    others = [world.name for world in WORLDS if world.name not in mutant.worlds]
    for world in (*mutant.worlds, *others):
        try:
            found = explore_mutant(mutant, world)
        except Exception as accident:  # any crash is an accident, not a catch
            catch.accidents.append(f"{world}: {accident!r}")
            continue
        if found.violation is not None:
            catch.caught = True
            catch.by = f"world {world}: {found.violation.invariant}"
            catch.steps = len(found.story)
            return catch
    with mutant.applied():
        _hunt_in_runs(catch, run, "random run")
    return catch


def _hunt_in_runs(catch: Catch, one_run: Callable[[int], object], kind: str) -> None:
    for seed in range(_SEEDS_MAX):
        try:
            one_run(seed)
        except (ViolationError, DirigoError) as error:
            catch.caught = True
            catch.by = f"{kind}, {seed + 1} seeds: {getattr(error, 'invariant', getattr(error, 'rule', 'policy'))}"
            return
        except Exception as accident:
            catch.accidents.append(f"seed {seed}: {accident!r}")
