"""A whole cluster in one thread and virtual time: workers, the network between them, and what user code costs.

A run is a function of its seed: every random number comes from a stream derived from it, and events of the same instant
have a fixed order. The cluster decides *when* things happen and nothing else; what happens is the kernel's.

User code is applied at the *end* of its service time, just before ``finish``. Nobody may touch the state of a running
instance meanwhile, so at either end the result is the same; but were the kernel to hand a state over while a message runs,
the update would land in the wrong place, and a run would show it. A ``Measured`` service has to apply at the start, because
only then is the time known. Control messages and arrivals are handled while a message runs, as by a worker's fetcher thread.

Workers whose strategy knows how much waits at them tell it along with what they send, as real ones do. These tell it now and
then without anything else to send as well; that is left out of large simulations, where it would be most of what happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from random import Random
from sys import float_info
from time import perf_counter
from typing import Any

from dirigo.errors import DirigoError
from dirigo.kernel import (
    Address,
    Data,
    Directory,
    Hooks,
    Message,
    Observer,
    RunnableMessage,
    Trail,
    Worker,
    WorkerId,
)
from dirigo.kernel.worker_loads import TOLD_AT_ONCE
from dirigo.sim.cores import Cores
from dirigo.sim.feed import Feed
from dirigo.sim.host import Arriving, Host, Told
from dirigo.sim.metrics import Metrics
from dirigo.sim.network import DeliveryOrder, Network, SimulatedLink
from dirigo.sim.quiescence import unfinished
from dirigo.sim.service import Measured, ServiceTime, ServiceTimes

Trace = Callable[[float, str, WorkerId, object], None]  # (when, what, where, the message)
StrategyFactory = Callable[[WorkerId, Random], Hooks]  # the generator is for strategies that leave something to chance
ObserverFactory = Callable[[WorkerId], Observer]
Carried = Callable[[list[Message]], None]  # what one worker sent in one go, before the network has it
# In seconds, for a message from another worker, or for a load that is told without one; and whether the fetcher still had
# something else to take in when it came.
FetchTime = Callable[[Message | None, bool], float]

EVENTS_MAX = 10_000_000
_FOREVER = float("inf")
_LAST_MOMENT = float_info.max  # what is due later (a freeze that never ends) does not happen
_DATA, _CONTROL = 0, 1
_ALARM, _TELL = "alarm", "tell"  # events of a host beside its messages
# Above the counter that breaks ties in the order of sending, room for a random number that breaks them otherwise.
_TIE_BITS, _COUNTER_BITS = 28, 34


class SimulationError(DirigoError):
    """A simulation cannot go on, or was asked for something that makes no sense."""


class SimulatedCluster:
    """Workers, sources and a network, driven event by event."""

    def __init__(
        self,
        workers: int | Iterable[WorkerId],
        directory: Directory,
        strategy: StrategyFactory,
        *,
        network: Network | None = None,
        service: ServiceTimes | None = None,
        seed: int = 0,
        begins_at: float = 0.0,
        observer: ObserverFactory | None = None,
        trace: Trace | None = None,
        carried: Carried | None = None,
        with_latencies: bool = False,
        fires_timers: bool = False,
        measure: Callable[[Any], int] | None = None,
        fetch_s: float | FetchTime = 0.0,
        cores: Cores | None = None,
        computing: ServiceTime | None = None,
        packet_s: float = 0.0,
        send_s: float = 0.0,
        tells_loads: bool = False,
    ) -> None:
        self.seed = seed
        self.now = begins_at
        self.metrics = Metrics()
        self.network = network or Network()
        self.service = service or ServiceTimes()
        self.trace = trace
        self.carried = carried
        self.account: Callable[[Worker, RunnableMessage, Trail], None] | None = None  # told of everything that was executed
        self.with_latencies = with_latencies
        self.fires_timers = fires_timers  # otherwise whoever runs the cluster does
        # What it takes a worker to take a message in from another one, whatever it runs meanwhile. A number counts in the
        # order of sending, which is that of arrival if delays are constant; what a function says, in the order of arrival.
        self._fetch_s = 0.0 if callable(fetch_s) or cores is not None else fetch_s
        self._fetch_time: FetchTime | None = fetch_s if callable(fetch_s) else None
        if cores is not None and not callable(fetch_s):
            self._fetch_time = lambda _message, _is_awake: fetch_s
        # Where workers share a machine, taking messages in needs a core, and so does what ``computing`` says of a message
        # that is executed, beside its service time, in which the worker sleeps; and packets at both ends of their way.
        self._cores = cores
        self._computing = computing
        self._packet_s = packet_s
        self._send_s = send_s  # for each further message that a worker sends in one go
        self._tells_loads = tells_loads  # also without a message
        self._network_rng = self.rng("network")
        self._service_rng = self.rng("service")
        self._is_unordered = self.network.order is DeliveryOrder.NONE
        self._heap: list[tuple[float, int, Host | Feed | None, Any]] = []
        self._pushed = 0
        self._noted: list[Host] = []
        self._hosts: dict[WorkerId, Host] = {}
        ids = tuple(range(workers) if isinstance(workers, int) else sorted(workers))
        for worker_id in ids:
            worker = Worker(worker_id, directory, strategy(worker_id, self.rng(f"strategy {worker_id}")))
            worker.observer = observer(worker_id) if observer is not None else None
            worker.rng = self.rng(f"worker {worker_id}")
            worker.workers = ids
            if measure is not None:
                worker.measure = measure
            self._hosts[worker_id] = Host(worker)

    # --- what there is -------------------------------------------------------------------------------------------------

    @property
    def workers(self) -> dict[WorkerId, Worker]:
        return {worker_id: host.worker for worker_id, host in self._hosts.items()}

    def rng(self, purpose: str) -> Random:
        """A stream of random numbers of its own for one purpose: the same for the same seed, whatever else is drawn."""
        return Random(f"{self.seed} {purpose}")

    def source(self, address: Address, worker: WorkerId, downstreams: tuple[Address, ...]) -> Feed:
        return Feed(self.push, self._host(worker), address, downstreams)

    def _host(self, worker: WorkerId) -> Host:
        try:
            return self._hosts[worker]
        except KeyError:
            raise SimulationError(f"there is no worker {worker} in this cluster; it has {sorted(self._hosts)}") from None

    # --- what is to happen ---------------------------------------------------------------------------------------------

    def at(self, t: float, action: Callable[[], None]) -> None:
        """Do something at a time; it comes before the messages that arrive in the same instant."""
        self.push(t, None, action)

    def freeze(self, worker: WorkerId, from_t: float, to_t: float) -> None:
        """Stop a worker for an interval: it receives and emits nothing, and what it runs rests. Messages wait."""
        self._host(worker).freezes.add(from_t, to_t)

    def slow(self, worker: WorkerId, factor: float, from_t: float = 0.0, to_t: float = _FOREVER) -> None:
        """Stretch the service times of what a worker starts in an interval."""
        self._host(worker).slowdowns.append((from_t, to_t, factor))

    def push(self, t: float, target: Host | Feed | None, item: Any) -> None:
        """Put an event into the heap: a message, an alarm or None (it is done) for a host, an output for a feed."""
        if t < self.now:
            raise SimulationError(f"it is {self.now} already; nothing can be scheduled for {t}")
        self._pushed += 1
        heappush(self._heap, (t, self._pushed, target, item))

    # --- how far it is -------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        """What is still to be done, one sentence each; empty when the cluster is at rest."""
        reasons = [f"{len(self._heap)} events are to come"] if self._heap else []
        for host in self._hosts.values():
            reasons.extend(unfinished(host.worker))
        return reasons

    def quiescent(self) -> bool:
        """Whether nothing is under way, queued, held or running anywhere."""
        return not self.unfinished()

    # --- the loop ------------------------------------------------------------------------------------------------------

    def run(self, until: float = _LAST_MOMENT, max_events: int = EVENTS_MAX) -> Metrics:
        """Let things happen until none is left, or up to and including a time; at most so many events."""
        events_before = self.metrics.events
        try:
            self._run(until, max_events)
        except Exception as error:
            events = self.metrics.events - events_before
            error.add_note(f"in the simulation with seed {self.seed}, at t={self.now!r}, after {events} events of this run")
            raise
        if self.now < until < _LAST_MOMENT:
            self.now = until
        return self.metrics

    def _run(self, until: float, max_events: int) -> None:
        heap, noted, metrics, trace = self._heap, self._noted, self.metrics, self.trace
        events = data_delivered = control_delivered = 0  # local, because the loop is hot
        try:
            while heap and heap[0][0] <= until:
                now = self.now = heap[0][0]
                # All events of an instant come before anybody starts a message: a strategy chooses among all that is there.
                while heap and heap[0][0] == now:
                    if events == max_events:
                        raise SimulationError(
                            f"the simulation took {max_events} events and has more to come; raise max_events, or look for "
                            f"what never ends: {'; '.join(self.unfinished()[:8])}"
                        )
                    events += 1
                    _, key, target, item = heappop(heap)
                    if type(target) is not Host:
                        self._do_other(key, target, item)
                        continue
                    worker = target.worker
                    worker.now = now
                    if item is None:
                        self._finish(target, key)
                    elif item is _ALARM:
                        self._fire_timers(target)
                    elif item is _TELL:
                        self._tell_load(target)
                        continue
                    elif target.freezes and (thaw := target.freezes.open_at(now)) > now:
                        heappush(heap, (thaw, key, target, item))  # with its old key, behind its predecessors
                        continue
                    elif type(item) is Arriving:
                        self._take_in(target, key, item.item)
                        continue
                    else:
                        if type(item) is Told:
                            worker.note_load(item.by, item.load)
                            item = item.message
                            if item is None:
                                continue
                        if type(item) is Data:
                            data_delivered += 1
                        else:
                            control_delivered += 1
                        if trace is not None:
                            trace(now, "deliver", worker.id, item)
                        worker.receive(item)
                    if worker.outgoing:
                        self._carry(target)
                    if target.may_wake or (worker.timed and self.fires_timers):
                        self._set_alarm(target)
                    if self._tells_loads and target.tells_load and target.tells_at <= now:
                        target.tells_at = target.next_tick(now)
                        self.push(target.tells_at, target, _TELL)
                    if worker.running is None and not target.is_noted:
                        target.is_noted = True
                        noted.append(target)
                for host in noted:
                    host.is_noted = False
                    if host.worker.running is None:
                        self._start(host)
                noted.clear()
        finally:
            metrics.events += events
            metrics.data_delivered += data_delivered
            metrics.control_delivered += control_delivered

    def _take_in(self, host: Host, key: int, item: Message | Told) -> None:
        """Something has come, and is taken in after what came before it."""
        assert self._fetch_time is not None
        # Whoever is at it, or waits for a core, finds it among the rest, even if its packet has to wait for a core as well.
        is_awake = host.fetched_at > self.now
        here = self.now if self._cores is None else self._cores.take(self.now, self._packet_s)
        begin = max(here, host.fetched_at)
        seconds = self._fetch_time(item.message if type(item) is Told else item, is_awake)
        host.fetched_at = begin + seconds if self._cores is None else self._cores.take(begin, seconds)
        heappush(self._heap, (host.fetched_at, key, host, item))

    def _do_other(self, key: int, target: Feed | None, item: Any) -> None:
        """An event that is not a worker's: a source emits, or somebody asked for a call."""
        if target is None:
            for host in self._hosts.values():
                host.worker.now = self.now
            item()
            for host in self._hosts.values():
                self._look_at(host)
            return
        host = target.host
        if type(item) is tuple:  # of a schedule, which goes on even if the worker is frozen now
            target.advance()
            item = item[1]
        if host.freezes and (thaw := host.freezes.open_at(self.now)) > self.now:
            heappush(self._heap, (thaw, key, target, item))
            return
        host.worker.now = self.now
        self.metrics.emitted += 1
        if self.trace is not None:
            self.trace(self.now, "emit", host.worker.id, item)
        target.source.emit(item)
        if host.worker.outgoing:
            self._carry(host)
        if host.may_wake:
            self._set_alarm(host)

    def _look_at(self, host: Host) -> None:
        if host.worker.outgoing:
            self._carry(host)
        if host.may_wake or (host.worker.timed and self.fires_timers):
            self._set_alarm(host)
        if host.worker.running is None and not host.is_noted:
            host.is_noted = True
            self._noted.append(host)

    def _set_alarm(self, host: Host) -> None:
        """See to it that the earliest timer of a worker fires, and that its strategy is woken when it wants to be."""
        due = host.worker.next_timer() if self.fires_timers else host.worker.extras.wake_at()
        if due is not None and due < host.timer_at:
            host.timer_at = due
            self.push(max(due, self.now), host, _ALARM)  # for this host alone: others have nothing to look at

    def _fire_timers(self, host: Host) -> None:
        host.timer_at = _FOREVER
        worker = host.worker
        if self.fires_timers:
            worker.fire_timers()
        elif (wake_at := worker.extras.wake_at()) is not None and wake_at <= self.now:
            worker.extras.wake(worker)
            worker.do_requests()

    def _start(self, host: Host) -> None:
        """Let an idle worker choose a message and run it."""
        now = self.now
        if host.freezes and (thaw := host.freezes.open_at(now)) > now:
            self.push(thaw, None, _nothing)  # the call makes everybody look again
            return
        worker = host.worker
        worker.now = now
        message = worker.next()
        if worker.outgoing:
            self._carry(host)
        if message is None:
            return
        if self._cores is not None:
            self._cores.working += 1
        model = self.service.model(message.to)
        if type(model) is Measured:
            begin = perf_counter()
            worker.apply()
            seconds = (perf_counter() - begin) * model.factor
            if model.more is not None:
                seconds += model.more(message, self._service_rng)
            host.is_applied = True
        else:
            seconds = model(message, self._service_rng)  # type: ignore[operator]
        if self._computing is not None:
            computing_s = self._computing(message, self._service_rng)
            seconds += computing_s if self._cores is None else self._cores.take(now, computing_s) - now
        if host.slowdowns:
            seconds = host.slowed(seconds, now)
        if seconds < 0.0:
            raise SimulationError(f"a service time cannot be negative, but that of {message.to} is {seconds}")
        if self.trace is not None:
            self.trace(now, "start", worker.id, message)
        host.started = now
        host.service_s = seconds
        done = host.freezes.end_of_work(now, seconds) if host.freezes else now + seconds
        self._pushed += 1
        heappush(self._heap, (done, self._pushed, host, None))

    def _finish(self, host: Host, key: int) -> None:
        """The service time is over, unless a freeze that was declared meanwhile has stretched it."""
        now = self.now
        if host.freezes and (done := host.freezes.end_of_work(host.started, host.service_s)) > now:
            heappush(self._heap, (done, key, host, None))
            return
        message = host.worker.running
        assert message is not None
        if self._cores is not None:
            self._cores.working -= 1
        if host.is_applied:
            host.is_applied = False
        else:
            host.worker.apply()
        if self.trace is not None:
            self.trace(now, "finish", host.worker.id, message)
        trail = host.worker.finish(now - host.started)
        self.metrics.executed += 1
        if self.account is not None:
            self.account(host.worker, message, trail)
        if self.with_latencies:
            self.metrics.latencies_s.setdefault(message.to, []).append(now - message.created)

    def _carry(self, host: Host) -> None:
        """Give what a worker wants sent to the network."""
        outgoing, now, heap = host.worker.outgoing, self.now, self._heap
        if self.carried is not None:
            self.carried(outgoing)
        load = host.worker.extras.backlog_s(host.worker) if host.tells_load else None
        is_further = False
        for message in outgoing:
            link, destination = host.links.get(message.worker) or self._connect(host, message.worker)
            item: Any = message
            if load is not None and destination is not host:
                item = Told(message, host.worker.id, load)
                if self._tells_loads:
                    host.loads_told[message.worker].note(load, self.now)
            if self._send_s and destination is not host:
                if is_further:
                    now = now + self._send_s if self._cores is None else self._cores.take(now, self._send_s)
                is_further = True
            leaves = now if self._cores is None or destination is host else self._cores.take(now, self._packet_s)
            if type(message) is Data:
                t = link.arrival(_DATA, leaves)
            else:
                t = link.arrival(_CONTROL, leaves)
                if self.network.duplicates and self._network_rng.random() < self.network.duplicates:
                    self.metrics.duplicates += 1
                    heappush(heap, (link.arrival(_CONTROL, now), self._key(), destination, item))
            if destination is not host:
                if self._fetch_s:
                    t = destination.fetched_at = max(t, destination.fetched_at) + self._fetch_s
                elif self._fetch_time is not None:
                    item = Arriving(item)
            heappush(heap, (t, self._key(), destination, item))
        outgoing.clear()

    def _tell_load(self, host: Host) -> None:
        """Tell some of the others for whom it is news what waits at a worker."""
        now, own = self.now, host.worker.id
        load = host.worker.extras.backlog_s(host.worker)
        unaware = [worker for worker in self._hosts if worker != own and host.loads_told[worker].is_news(load, now)]
        for worker in unaware[:TOLD_AT_ONCE]:
            host.loads_told[worker].note(load, now)
            link, destination = host.links.get(worker) or self._connect(host, worker)
            leaves = now + self._send_s
            if self._cores is not None:
                leaves = self._cores.take(now, self._send_s + self._packet_s)
            told = Told(None, own, load)
            item = told if self._fetch_time is None else Arriving(told)
            heappush(self._heap, (link.arrival(_CONTROL, leaves), self._key(), destination, item))

    def _key(self) -> int:
        """Breaks ties between messages that arrive in one instant."""
        self._pushed += 1
        if self._is_unordered:
            return (self._network_rng.getrandbits(_TIE_BITS) << _COUNTER_BITS) + self._pushed
        return self._pushed

    def _connect(self, host: Host, destination: WorkerId) -> tuple[SimulatedLink, Host]:
        link = self.network.link(host.worker.id, destination, self._network_rng)
        connected = host.links[destination] = (link, self._host(destination))
        return connected


def _nothing() -> None:
    """A call that only wakes up whoever stood still."""
