"""The steps of a calibration: a probe, and then runs at a constant rate until the workers are about half busy."""

from __future__ import annotations

from collections.abc import Callable

from dirigo.calibration.inputs import at_constant_rate, shares_of, sources_of
from dirigo.calibration.measurement import HALF, Calibration, Measurement, adjusted_rate, are_slow, is_half, notes_on
from dirigo.calibration.runs import Runs
from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.plan.substitutes import sink_names, substituted
from dirigo.flow.sinks import to_nothing
from dirigo.runtime.client.client import Client
from dirigo.runtime.errors import ControlError

_RATE_OFF_MOST = 0.05  # a rate that differs by less is the same
_ROUNDS_MOST = 3
_CAREFUL_RATE = 20.0  # rows per second, if a row costs so much that a probe has no end
_SETTLE_SHARE, _SETTLE_S_MOST = 0.25, 2.0  # of a run, before it counts

Told = Callable[[str], None]


def calibrate(
    client: Client, flow: Dataflow, *, probe_s: float, measure_s: float, told: Told = lambda _: None
) -> Calibration:
    """Run a flow on a cluster that does nothing else: a probe, and up to three times at a constant rate."""
    sources = sources_of(flow)
    quiet = substituted(flow, sinks={name: to_nothing(name=name) for name in sink_names(flow)})
    quiet.slo = None  # or a strategy might act on the objective that is to be found
    shares = shares_of(substituted(quiet, sources=sources))
    run = Runs(client, flow.name)

    def at(rate: float, step: str, seconds: float) -> Measurement:
        told(f"measuring at {rate:,.0f} rows/s ...")
        paced = {name: at_constant_rate(source, rate * shares[name]) for name, source in sources.items()}
        settle_s = min(seconds * _SETTLE_SHARE, _SETTLE_S_MOST)
        return run.measure(step, rate, substituted(quiet, sources=paced), seconds + settle_s, settle_s)

    told("probing with sources as fast as they go ...")
    probe = run.probe(substituted(quiet, sources=sources), probe_s) or at(_CAREFUL_RATE, "probe", probe_s)
    rounds: list[Measurement] = []
    rate = probe.half_rate
    for number in range(_ROUNDS_MOST):
        found = at(rate, "half" if number == 0 else "adjusted", measure_s)
        rounds.append(found)
        if is_half(found) or found.is_short or are_slow(found):
            break
        before, rate = rate, adjusted_rate(probe, found)
        if abs(rate - before) < _RATE_OFF_MOST * before:
            break
    chosen = min(rounds, key=lambda each: (not each.results, each.is_full, abs(each.utilisation - HALF)))
    if not chosen.latency_ms:
        raise ControlError(
            f"no result of '{flow.name}' came in {chosen.seconds:.1f} s; measure longer, with --for (but results that come "
            "only at the end of the input cannot be measured)."
        )
    return Calibration(flow.name, [probe, *rounds], chosen, notes_on(probe, chosen))
