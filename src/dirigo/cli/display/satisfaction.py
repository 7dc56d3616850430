"""How well jobs meet their objectives, as people read it: the share of results in time, and why the others were late."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor

from rich.text import Text

from dirigo.cli.display.amounts import NOTHING, shown_count, shown_latency
from dirigo.runtime.control import JobStatus
from dirigo.scheduling.accounting import Satisfaction

_CAUSES_SHOWN_MOST = 3
_CAUSE_LEAST = 0.05  # a smaller share explains nothing


def shown_share(share: float) -> str:
    """At most 6 characters. Never rounded up: what misses its target must not look as if it met it."""
    thousandths = floor(share * 1000 + 1e-6)
    return "100 %" if thousandths >= 1000 else f"{thousandths / 10:.1f} %"


def shown_objective(latency_ms: int | None) -> str:
    """At most 6 characters."""
    return f"{latency_ms}ms" if latency_ms is not None and latency_ms < 10 else shown_latency(latency_ms)


def in_time(share: float | None, target: float | None) -> Text:
    """The share of results within the objective, green if it is as large as it should be."""
    if share is None or target is None:
        return Text(NOTHING)
    return Text(shown_share(share), style="green" if share >= target else "red")


def in_time_of(job: JobStatus) -> Text:
    return in_time(job.metrics.satisfaction.results, job.target)


def why_late(causes: Mapping[str, float]) -> str:
    """Where the time of late ones went, the largest share first: "61 % queue, 30 % barrier"."""
    largest = sorted(causes.items(), key=lambda item: -item[1])[:_CAUSES_SHOWN_MOST]
    shown = [item for item in largest if item[1] >= _CAUSE_LEAST]
    return ", ".join(f"{share * 100:.0f} % {cause}" for cause, share in shown)


def late_note(satisfaction: Satisfaction) -> str:
    """Why results were late, in a few words; nothing if none was."""
    if not satisfaction.late_results:
        return ""
    return f"late: {why_late(satisfaction.why_results)} ({shown_count(satisfaction.late_results)} results)"
