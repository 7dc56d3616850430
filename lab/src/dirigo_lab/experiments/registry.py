"""All experiments by name, in the order in which they are listed and run."""

from __future__ import annotations

from difflib import get_close_matches

from dirigo.errors import DirigoError
from dirigo_lab.experiments.experiment import Experiment
from dirigo_lab.experiments.hybrid import HybridContest
from dirigo_lab.experiments.overhead.lessees import OverheadLessees
from dirigo_lab.experiments.overhead.state import OverheadState
from dirigo_lab.experiments.rate_control import RateControl
from dirigo_lab.experiments.read_heavy.read_heavy import ReadHeavy
from dirigo_lab.experiments.reality import Reality
from dirigo_lab.experiments.scale import Scaling
from dirigo_lab.experiments.skew import Skew
from dirigo_lab.experiments.span import SpanExperiment
from dirigo_lab.experiments.transient import Transient

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (
        SpanExperiment(),
        Skew(),
        Transient(),
        OverheadLessees(),
        OverheadState(),
        RateControl(),
        ReadHeavy(),
        HybridContest(),
        Scaling(),
        Reality(),
    )
}


class UnknownExperimentError(DirigoError):
    """There is no experiment of that name."""


def experiment_named(name: str) -> Experiment:
    """The experiment of that name; an error that tells the nearest name and all others if there is none."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    nearest = get_close_matches(name, EXPERIMENTS, n=1, cutoff=0.3)
    hint = f"did you mean '{nearest[0]}'? All" if nearest else "all"
    raise UnknownExperimentError(f"there is no experiment '{name}'; {hint} of them: {', '.join(EXPERIMENTS) or 'none yet'}.")
