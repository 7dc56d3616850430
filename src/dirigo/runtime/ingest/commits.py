"""The commits of micro-batches, at the controller: what was staged for one goes into its source, at all workers or at none.

Where rows are kept, it is decided first, on disk, which attempts these are. Then any generation of the job can carry it out,
wherever the splits are read by then; whoever asked before is told to ask again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dirigo.flow.errors import cut_text, said
from dirigo.runtime import control
from dirigo.runtime.controller.job_record import BatchCommit, JobRecord
from dirigo.runtime.errors import ControlError
from dirigo.runtime.failures import ERROR_CHARACTERS_MOST
from dirigo.runtime.ingest.decisions import Decision

if TYPE_CHECKING:
    from dirigo.runtime.controller.controller import Controller

_log = logging.getLogger(__name__)

RELEASED: Final = "released"
KNOWN: Final = "known"  # it was released before, perhaps as other attempts
FULL: Final = "full"  # what was released earlier is still being read
GONE: Final = "gone"  # the worker has nothing of the job
AWAY: Final = "away"  # the job is about to begin, or to come back
_RELEASE_S: Final = 30.0  # for the workers to confirm a commit
_QUERIES_REMEMBERED: Final = 4096

Asker = tuple[bytes, int]  # a client, and the number of its request
Answer = Callable[[Asker, Any, str | None], None]


@dataclass
class _Releasing:
    """A commit that some workers have still to confirm."""

    asker: Asker | None  # nobody, if it is carried out because the job has come back
    missing: set[int]  # the workers
    until_s: float
    run: str
    key: tuple[str, str]  # source, query
    commit: BatchCommit
    decision: Decision | None = None  # where rows are kept
    is_replay: bool = False  # the attempts are not those that were offered
    outcomes: list[str] = field(default_factory=list)


class Commits:
    """Part of the controller, on its thread."""

    def __init__(self, controller: Controller, answer: Answer) -> None:
        self._controller = controller
        self._answer = answer
        self._releasing: dict[int, _Releasing] = {}
        self._last_release = 0

    def release(self, asker: Asker, job: JobRecord, request: control.ReleaseBatch) -> None:
        if job.decisions is not None:
            self._decide(asker, job, request)
            return
        self._go_on_with(asker, job, (request.source, request.query), self._commit(job, request))

    def _go_on_with(self, asker: Asker | None, job: JobRecord, key: tuple[str, str], commit: BatchCommit) -> None:
        """Where rows are not kept: they are at the workers that they were brought to."""
        by_worker: dict[int, list[tuple[int, str]]] = {}
        for attempt in () if commit.is_done else commit.attempts:
            slot = self._controller.slots.get(attempt.worker)
            if slot is None or slot.incarnation != attempt.incarnation:
                raise ControlError("a worker that rows were brought to is gone; the job cannot go on.")
            by_worker.setdefault(attempt.worker, []).append((attempt.split, attempt.attempt))
        self._order(asker, job, key, commit, by_worker)

    def complete(self, job: JobRecord, source: str | None) -> None:
        """A source is about to end, or all of them: what a part of its splits may have got of a micro-batch goes to the
        others too, whether there is room or not."""
        for key, commit in list(job.commits.items()):
            if commit.is_done or source not in (None, key[0]):
                continue
            decision = None if job.decisions is None else job.decisions.last(*key)
            if decision is not None:
                self._carry_out(None, job, decision)
            elif job.decisions is None:
                with suppress(ControlError):  # it is about to fail
                    self._go_on_with(None, job, key, commit)

    def _order(
        self,
        asker: Asker | None,
        job: JobRecord,
        key: tuple[str, str],
        commit: BatchCommit,
        by_worker: dict[int, list[tuple[int, str]]],
        decision: Decision | None = None,
        *,
        is_replay: bool = False,
    ) -> None:
        """Have workers release their part; the answer follows when all have."""
        if not by_worker:
            self._tell(asker, RELEASED)
            return
        self._last_release += 1
        until = time.monotonic() + _RELEASE_S
        self._releasing[self._last_release] = _Releasing(
            asker, set(by_worker), until, job.run, key, commit, decision, is_replay
        )
        for worker, attempts in by_worker.items():
            order = control.Release(self._last_release, job.run, *key, commit.batch, tuple(attempts), whole=asker is None)
            self._controller.order(worker, order)

    def _tell(self, asker: Asker | None, value: str | None, error: str | None = None) -> None:
        if asker is not None:
            self._answer(asker, value, error)
        elif error is not None:
            _log.warning("a micro-batch whose commit was begun cannot be released: %s", error)

    def _commit(self, job: JobRecord, request: control.ReleaseBatch) -> BatchCommit:
        """The commit of a micro-batch. One that was begun before, perhaps at some workers only, is resumed."""
        key = (request.source, request.query)
        last = job.commits.get(key)
        if last is not None and request.batch == last.batch:
            return last
        if last is not None and request.batch < last.batch:
            return BatchCommit(request.batch, (), is_done=True)
        return self._begin(job, key, BatchCommit(request.batch, request.attempts))

    @staticmethod
    def _begin(job: JobRecord, key: tuple[str, str], commit: BatchCommit) -> BatchCommit:
        job.commits.pop(key, None)  # the one that is committed last comes last
        job.commits[key] = commit
        if len(job.commits) > _QUERIES_REMEMBERED:
            del job.commits[next(iter(job.commits))]
        return commit

    def is_committing(self, asker: Asker, job: JobRecord, request: control.IsCommitting) -> None:
        decisions = job.decisions
        if decisions is None:
            last = job.commits.get((request.source, request.query))
            self._answer(asker, last is not None and last.batch == request.batch, None)
            return

        def look() -> Callable[[], None]:  # behind whatever is being decided
            last = decisions.last(request.source, request.query)
            return lambda: self._answer(asker, last is not None and last.batch == request.batch, None)

        self._controller.beside(look)

    # --- rows that are kept --------------------------------------------------------------------------------------------

    def _decide(self, asker: Asker, job: JobRecord, request: control.ReleaseBatch) -> None:
        """Write down, elsewhere, which attempts are released; or find out which were to be before."""
        decisions = job.decisions
        assert decisions is not None
        if job.state not in ("running", "draining"):
            self._answer(asker, AWAY, None)
            return
        splits = job.manifest.pushed[request.source][0]
        offered = tuple((each.split, each.attempt) for each in request.attempts)
        if any(split not in range(splits) for split, _ in offered):
            raise ControlError(f"source '{request.source}' of job '{job.name}' has {splits} splits, and no others.")
        if not offered:
            self._answer(asker, RELEASED, None)
            return
        run = job.run

        def decide() -> Callable[[], None]:
            try:
                decision = decisions.decide(request.source, request.query, request.batch, offered)
            except Exception as error:
                why = f"the commit of a micro-batch cannot be kept: {said(error)}; free space there and run the query again."
                return lambda: self._answer(asker, None, why)
            return lambda: self._decided(asker, run, offered, decision)

        self._controller.beside(decide)

    def _decided(self, asker: Asker, run: str, offered: tuple[tuple[int, str], ...], decision: Decision | None) -> None:
        job = self._controller.of_run(run)
        if decision is None:
            self._answer(asker, KNOWN, None)
        elif job is None or job.state not in ("running", "draining"):
            self._answer(asker, AWAY, None)
        else:
            self._carry_out(asker, job, decision, is_replay=decision.attempts != offered)

    def _carry_out(self, asker: Asker | None, job: JobRecord, decision: Decision, *, is_replay: bool = False) -> None:
        by_worker: dict[int, list[tuple[int, str]]] = {}
        for split, attempt in decision.attempts:
            by_worker.setdefault(job.places[decision.source, split], []).append((split, attempt))
        key = (decision.source, decision.query)
        commit = self._begin(job, key, BatchCommit(decision.batch, ()))
        self._order(asker, job, key, commit, by_worker, decision, is_replay=is_replay)

    def go_on(self, job: JobRecord) -> None:
        """A generation begins: carry out what was decided in the ones before, and may not have been."""
        for decision in job.decisions.all() if job.decisions is not None and job.generation else ():
            last = job.commits.get((decision.source, decision.query))
            if last is None or last.batch != decision.batch or not last.is_done:
                self._carry_out(None, job, decision)

    # --- the workers ---------------------------------------------------------------------------------------------------

    def released(self, worker: int, record: control.Released) -> None:
        """A worker confirms a commit, or says why not."""
        releasing = self._releasing.get(record.request)
        if releasing is None or worker not in releasing.missing:
            return
        outcome = cut_text(record.outcome, ERROR_CHARACTERS_MOST)
        releasing.outcomes.append(outcome)
        releasing.missing.remove(worker)
        releasing.commit.has_begun |= record.has_begun or outcome in (RELEASED, KNOWN)
        if not releasing.missing:
            del self._releasing[record.request]
            self._conclude(releasing)

    def _conclude(self, releasing: _Releasing) -> None:
        wrong = [outcome for outcome in releasing.outcomes if outcome not in (RELEASED, KNOWN, FULL)]
        is_kept = releasing.decision is not None
        if is_kept and (GONE in wrong or self._controller.of_run(releasing.run) is None):
            self._tell(releasing.asker, AWAY)  # a loss, of which nobody has told yet
        elif wrong:
            self._forget(releasing)
            self._tell(releasing.asker, None, "the job has ended" if wrong[0] == GONE else wrong[0])
        elif FULL in releasing.outcomes:
            self._tell(releasing.asker, FULL)
        else:
            releasing.commit.is_done = True
            self._tell(releasing.asker, KNOWN if releasing.is_replay else RELEASED)

    def _forget(self, releasing: _Releasing) -> None:
        """A commit that failed before anything was released: a replay may bring other attempts."""
        job = self._controller.of_run(releasing.run)
        if job is None or releasing.commit.has_begun or job.commits.get(releasing.key) is not releasing.commit:
            return
        del job.commits[releasing.key]
        decisions, decision = job.decisions, releasing.decision
        if decisions is not None and decision is not None:

            def forget() -> Callable[[], None]:
                try:
                    decisions.forget(decision)
                except OSError as error:
                    _log.warning("a commit that failed cannot be forgotten: %s", error)
                return lambda: None

            self._controller.beside(forget)

    def look(self, now: float, *, is_last: bool = False) -> None:
        """Answer those who wait in vain."""
        for request, releasing in list(self._releasing.items()):
            is_kept = releasing.decision is not None
            if now < releasing.until_s and not is_last and not (is_kept and self._is_taken_back(releasing)):
                continue
            del self._releasing[request]
            if is_kept and not is_last:
                self._tell(releasing.asker, AWAY)
            else:
                self._tell(releasing.asker, None, "a worker does not confirm the commit; the job may have failed.")

    def _is_taken_back(self, releasing: _Releasing) -> bool:
        job = self._controller.of_run(releasing.run)
        return job is None or job.outcome is not None
