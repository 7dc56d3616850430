"""What workers call a job: each generation of it is, to them, a job of its own.

So what is still under way from an earlier generation, messages, reports and orders alike, is of a job that nobody knows.
"""

from __future__ import annotations


def run_of(job: str, generation: int) -> str:
    """The name of one generation of a job: the job's id (name~number), from the second on with its number behind it."""
    return f"{job}.{generation}" if generation else job


def generation_of(run: str) -> int:
    number = run.rpartition("~")[2].partition(".")[2]
    return int(number) if number else 0


def job_of_run(run: str) -> str:
    """The job's id. A name may have dots in it, the number of a submission has none."""
    name, tilde, number = run.rpartition("~")
    return f"{name}{tilde}{number.partition('.')[0]}" if tilde else run
