"""What all of the laboratory does with jobs on a cluster."""

from __future__ import annotations

from dirigo.runtime.client.job import Job


def give_up(job: Job) -> None:
    """Cancel a job, if it can still be cancelled."""
    try:
        job.cancel()
    except Exception:
        return  # it is over, or the cluster is
