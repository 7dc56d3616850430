"""The sending side of an instance: where its outputs go, their ids, and the barriers it sends.

An output has no id until it leaves. It leaves at once to the target's lessor or over an open channel to one of its lessees;
it waits while a channel is being asked for, and behind a barrier that the target has not acknowledged yet. Whoever sends a
barrier first sends everything that waits, so that nothing executed before the barrier is left out of its cut.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dirigo.kernel.interface.address import Address, WorkerId
from dirigo.kernel.interface.message import (
    Critical,
    CriticalOutput,
    Data,
    Grant,
    Granularity,
    Lane,
    Output,
    ProgramAck,
    Registration,
    Revoke,
    RevokeAck,
    SyncProgram,
)

if TYPE_CHECKING:
    from dirigo.kernel.participant import Participant

_INPUT = Lane.INPUT
_ENDED = -1  # what a route awaits that nothing may follow on, so that the check for it is off the hot path


class Route:
    """Everything the sender knows of one downstream actor."""

    __slots__ = (
        "asked",
        "awaiting",
        "backlog",
        "collected",
        "ended",
        "home",
        "leasable",
        "number",
        "ones",
        "open",
        "programs",
        "reported",
        "revoked",
        "sent",
        "snapshots",
        "to",
        "view",
        "waiting",
    )

    def __init__(self, to: Address, home: WorkerId, leasable: bool) -> None:
        self.to = to
        self.home = home
        self.leasable = leasable  # an ordered target grants nothing, so it is never asked
        self.ended = False  # the final barrier has been sent
        self.sent: dict[WorkerId, int] = {}  # the last id per instance of the target
        self.reported: dict[WorkerId, int] = {}  # as of the last barrier that named them
        self.open: set[WorkerId] = set()  # lessees that may be sent to
        self.number = 0  # of registrations; advanced whenever the channels close
        self.revoked = 0  # the number of the last REVOKE
        self.asked: frozenset[WorkerId] = frozenset()  # by the registration under way
        self.waiting: list[tuple[WorkerId, Output]] = []  # for the answer to a registration
        self.view = 0  # what the lessees in ``open`` must know before they run what we send
        self.collected: dict[tuple[WorkerId, WorkerId], int] = {}  # last ids that own lessees reported
        self.programs = 0  # barriers sent
        self.ones = 0  # SYNC_ONEs among them: the nth of every upstream actor belong together
        self.snapshots = 0  # snapshots among them, of which the same holds
        self.awaiting = 0  # the program whose acknowledgment is outstanding, if any; or _ENDED
        self.backlog: deque[Output | CriticalOutput] = deque()  # behind it


class Outbox:
    """All routes of one participant."""

    __slots__ = ("busy", "informed", "participant", "routes")

    def __init__(self, participant: Participant) -> None:
        self.participant = participant
        self.routes: dict[Address, Route] = {}
        self.busy: set[Address] = set()  # targets that have not acknowledged a program yet
        self.informed: set[Address] = set()  # targets that got a program in the round under way

    def route(self, to: Address) -> Route:
        route = self.routes.get(to)
        if route is None:
            participant = self.participant
            if to not in participant.spec_downstreams:
                raise participant.error("send-along-edges", f"it sends to {to}, which is not among its downstream actors")
            spec = participant.host.directory[to]
            route = self.routes[to] = Route(to, spec.home, not spec.ordered)
        return route

    # --- regular messages ----------------------------------------------------------------------------------------------

    def emit(self, output: Output | CriticalOutput) -> None:
        """Send an output as soon as the protocol allows."""
        participant = self.participant
        if participant.host.observer is not None:
            participant.host.observer.emitted(participant.address, participant.worker, output)
        route = self.routes.get(output.to) or self.route(output.to)
        if output.critical or route.awaiting:
            if route.ended:
                raise participant.error(
                    "nothing-after-the-end", f"it has ended towards {route.to} but sends {output.payload!r}"
                )
            route.backlog.append(output)
            self.pump(route)
        else:
            self._ship(route, output)  # type: ignore[arg-type]

    def pump(self, route: Route) -> None:
        """Send what waits behind a barrier, up to and including the next barrier."""
        while route.backlog and not route.awaiting:
            if route.backlog[0].critical:
                self._send_program(route)
            else:
                self._ship(route, route.backlog.popleft())  # type: ignore[arg-type]

    def _ship(self, route: Route, output: Output) -> None:
        host = self.participant.host
        worker = host.strategy.prepare_send(host, self.participant.address, output)
        if worker is None or worker == route.home:
            self._send(route, route.home, 0, output)
        elif worker in route.open:
            self._send(route, worker, route.view, output)
        elif route.leasable and self.participant.may_register():
            route.waiting.append((worker, output))
            self._ask(route)
        else:
            self._send(route, route.home, 0, output)

    def _send(self, route: Route, worker: WorkerId, view: int, output: Output) -> None:
        participant = self.participant
        seq = route.sent.get(worker, 0) + 1
        route.sent[worker] = seq
        participant.host.outgoing.append(
            Data(
                output.to,
                worker,
                participant.address,
                participant.worker,
                _INPUT,
                seq,
                view,
                output.payload,
                output.created,
                output.deadline,
                output.sent,
                output.trail,
            )
        )

    def send_waiting_home(self, route: Route) -> None:
        """Give up waiting for a grant: the target's lessor is always open."""
        waiting, route.waiting = route.waiting, []
        for _, output in waiting:
            self._send(route, route.home, 0, output)

    def send_all_waiting_home(self) -> None:
        for route in self.routes.values():
            self.send_waiting_home(route)

    # --- barriers ------------------------------------------------------------------------------------------------------

    def _send_program(self, route: Route) -> None:
        """Send the barrier at the head of the backlog, with all critical messages that directly follow it."""
        participant = self.participant
        self.send_waiting_home(route)
        first = route.backlog.popleft()
        assert isinstance(first, CriticalOutput)
        criticals = [first]
        if first.granularity is Granularity.CHANNEL:
            while not criticals[-1].final and route.backlog:
                following = route.backlog[0]
                if not isinstance(following, CriticalOutput) or following.granularity is not Granularity.CHANNEL:
                    break
                criticals.append(following)
                route.backlog.popleft()
        for output in criticals:
            participant.host.strategy.prepare_send(
                participant.host, participant.address, output
            )  # it may look, but a barrier goes home
        if criticals[-1].final:
            route.ended = True
            if route.backlog:
                after = route.backlog[0].payload
                raise participant.error("nothing-after-the-end", f"it has ended towards {route.to} but sends {after!r}")
        route.programs += 1
        barrier = self._count(route, first.granularity)
        route.awaiting = route.programs
        self.busy.add(route.to)
        self.informed.add(route.to)
        blocks = (participant.address,) if first.granularity is Granularity.CHANNEL else self._upstreams_of(route.to)
        dependencies = self._take_dependencies(route)
        self.close(route)
        participant.host.outgoing.append(
            SyncProgram(
                route.to,
                route.home,
                participant.address,
                participant.worker,
                route.programs,
                first.granularity,
                barrier,
                blocks,
                criticals[-1].final,
                tuple(Critical(each.payload, each.created, each.deadline, each.sent, each.trail) for each in criticals),
                dependencies,
            )
        )

    def _count(self, route: Route, granularity: Granularity) -> int:
        """Which of its kind a barrier is, where the barriers of several upstream actors belong together."""
        if granularity is Granularity.ONE:
            route.ones += 1
            return route.ones
        if granularity is Granularity.SNAPSHOT:
            route.snapshots += 1
            return route.snapshots
        return 0

    def _upstreams_of(self, to: Address) -> tuple[Address, ...]:
        return self.participant.host.directory[to].upstreams

    def _take_dependencies(self, route: Route) -> tuple[tuple[WorkerId, WorkerId, int], ...]:
        """The last id on every channel from this actor to the target that was used since the last barrier to it."""
        last = route.collected
        route.collected = {}
        for receiver, seq in route.sent.items():
            if route.reported.get(receiver, 0) != seq:
                last[self.participant.worker, receiver] = seq
        route.reported = dict(route.sent)
        return tuple((sender, receiver, seq) for (sender, receiver), seq in sorted(last.items()))

    def on_program_ack(self, ack: ProgramAck) -> bool:
        """The target installed the cut; False for an acknowledgment that is not the awaited one."""
        route = self.route(ack.sender)
        if route.awaiting != ack.number:
            return False
        route.awaiting = _ENDED if route.ended else 0
        self.busy.discard(route.to)
        self.pump(route)
        return True

    # --- ids of a lessee, reported to its lessor -----------------------------------------------------------------------

    def take_sent(self) -> tuple[tuple[Address, WorkerId, int], ...]:
        """The last ids on all channels that were used since the last report."""
        report: list[tuple[Address, WorkerId, int]] = []
        for route in self.routes.values():
            for receiver, seq in route.sent.items():
                if route.reported.get(receiver, 0) != seq:
                    report.append((route.to, receiver, seq))
            route.reported = dict(route.sent)
        return tuple(sorted(report))

    def collect(self, lessee: WorkerId, report: tuple[tuple[Address, WorkerId, int], ...]) -> None:
        """Keep a lessee's last ids until a barrier goes to the actor that they concern."""
        for to, receiver, seq in report:
            collected = self.route(to).collected
            collected[lessee, receiver] = max(seq, collected.get((lessee, receiver), 0))

    # --- channels to lessees -------------------------------------------------------------------------------------------

    def _ask(self, route: Route) -> None:
        if route.asked:
            return
        route.number += 1
        participant = self.participant
        host = participant.host
        also = host.extras.also_wanted(host, participant.address, route.to)
        route.asked = frozenset((*(worker for worker, _ in route.waiting), *also)) - route.open - {route.home}
        host.outgoing.append(
            Registration(
                route.to, route.home, participant.address, participant.worker, route.number, tuple(sorted(route.asked))
            )
        )

    def on_grant(self, grant: Grant) -> bool:
        """Open the granted channels; False for the answer to a question that no longer stands."""
        route = self.route(grant.sender)
        if grant.number != route.number or not route.asked:
            return False
        asked, route.asked = route.asked, frozenset()
        route.open.update(grant.workers)
        route.view = max(route.view, grant.view)
        waiting, route.waiting = route.waiting, []
        for worker, output in waiting:
            if worker in route.open:
                self._send(route, worker, route.view, output)
            elif worker in asked or not self.participant.may_register():
                self._send(route, route.home, 0, output)
            else:
                route.waiting.append((worker, output))
        if route.waiting:
            self._ask(route)
        return True

    def close(self, route: Route) -> None:
        """Stop sending to lessees, and make every answer that is still under way void."""
        route.number += 1
        route.asked = frozenset()
        route.open.clear()
        self.send_waiting_home(route)

    def close_all(self) -> None:
        for route in self.routes.values():
            self.close(route)

    def on_revoke(self, revoke: Revoke) -> None:
        """The target's lessor takes its grants back: stop, and tell the last ids."""
        route = self.route(revoke.sender)
        if revoke.number <= route.revoked:
            return
        route.revoked = revoke.number
        self.close(route)
        participant = self.participant
        participant.host.outgoing.append(
            RevokeAck(
                route.to,
                route.home,
                participant.address,
                participant.worker,
                revoke.number,
                tuple(sorted((worker, seq) for worker, seq in route.sent.items() if worker != route.home)),
                route.number,
            )
        )
