"""The two tables of the mailbox: every row does what it says, everything else raises, and nothing happens."""

import pickle
from typing import Any

import pytest

from dirigo.kernel import Address, CriticalOutput, MailboxState, Output, ProtocolError, Role, RunnableMessage, WorkerId
from dirigo.kernel.mailbox import (
    ADMISSIONS,
    ADMIT,
    NEXT_STATE,
    TRANSITIONS,
    Admission,
    Event,
    MessageKind,
    Transition,
    Verdict,
)
from kernel.scenario import (
    A,
    D,
    S,
    Stage,
    T,
    critical,
    critical_run,
    forwarded,
    handed_back,
    intent,
    program,
    program_ack,
    reply,
    row,
    sync_request,
    unsync,
)

RUNNABLE, DRAINING = MailboxState.RUNNABLE, MailboxState.DRAINING
BLOCKED, CRITICAL = MailboxState.BLOCKED, MailboxState.CRITICAL
WORKER = {Role.LESSOR: 1, Role.LESSEE: 2}


def stage_in(role: Role, state: MailboxState) -> Stage:
    stage = Stage(WORKER[role])
    assert stage.instance().role is role
    stage.instance().state = state
    return stage


def label(row_: tuple[Any, ...]) -> str:
    return "-".join(part.name for part in row_[:3])


# --- transitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transition", TRANSITIONS, ids=label)
def test_a_transition_leads_where_its_row_says(transition: Transition) -> None:
    stage = stage_in(transition.role, transition.source)
    stage.instance().enter(transition.event)
    stage.is_in(transition.target)
    assert stage.told() == f"{transition.source.value} -> {transition.target.value}: {transition.event.value}"


@pytest.mark.parametrize(
    ("role", "state", "event"),
    [
        (role, state, event)
        for role in Role
        for state in MailboxState
        for event in Event
        if (role, state, event) not in NEXT_STATE
    ],
)
def test_an_event_without_a_row_raises_and_nothing_happens(role: Role, state: MailboxState, event: Event) -> None:
    stage = stage_in(role, state)
    stage.instance().tell("once upon a time")
    with pytest.raises(ProtocolError) as caught:
        stage.instance().enter(event)
    stage.is_in(state).sends_nothing()
    assert stage.told() == "once upon a time"
    assert caught.value.rule == "table"
    assert caught.value.who == f"{A}@w{WORKER[role]}"
    assert caught.value.what == f"in {state.value} there is no transition for '{event.value}'"
    assert caught.value.story == ("once upon a time",)


def test_no_two_rows_answer_the_same_question() -> None:
    assert len(NEXT_STATE) == len(TRANSITIONS)
    assert len(ADMIT) == len(ADMISSIONS)


def test_every_state_can_be_left_and_a_lessee_is_never_critical() -> None:
    lessor = {(row_.source, row_.target) for row_ in TRANSITIONS if row_.role is Role.LESSOR}
    lessee = {(row_.source, row_.target) for row_ in TRANSITIONS if row_.role is Role.LESSEE}
    assert {source for source, _ in lessor} == set(MailboxState)
    assert {source for source, _ in lessee} == {target for _, target in lessee} == {RUNNABLE, DRAINING, BLOCKED}
    assert [edge for edge in lessor if edge[1] is CRITICAL] == [(BLOCKED, CRITICAL)]


# --- admissions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("admission", [row_ for row_ in ADMISSIONS if row_.kind is not MessageKind.CRITICAL], ids=label)
def test_a_message_fares_as_the_row_of_its_kind_says(admission: Admission) -> None:
    stage = stage_in(admission.role, admission.state)
    message = row("x", 1, worker=WORKER[admission.role])
    stage.instance().admit(message, admission.kind)
    held = admission.verdict is Verdict.HOLD
    assert stage.instance().held == ([message] if held else [])
    assert stage.steering.offered == ([] if held else ["x"])


def test_a_critical_message_may_run_in_critical_and_nowhere_else() -> None:
    run = critical_run("W")
    allowed = [(role, state) for role in Role for state in MailboxState if stage_in(role, state).worker.may_run(run)]
    assert allowed == [(Role.LESSOR, CRITICAL)]


@pytest.mark.parametrize(
    ("role", "state", "kind"),
    [
        (role, state, kind)
        for role in Role
        for state in MailboxState
        for kind in MessageKind
        if (role, state, kind) not in ADMIT
    ],
)
def test_a_message_without_a_row_raises_and_nothing_happens(role: Role, state: MailboxState, kind: MessageKind) -> None:
    stage = stage_in(role, state)
    with pytest.raises(ProtocolError, match=f"in {state.value} no message that is '{kind.value}' can come") as caught:
        stage.instance().admit(row("x", 1, worker=WORKER[role]), kind)
    stage.is_in(state).sends_nothing()
    assert caught.value.rule == "table"
    assert stage.instance().held == []
    assert stage.steering.offered == []


@pytest.mark.parametrize("admission", ADMISSIONS, ids=label)
def test_what_the_strategy_kept_may_run_unless_its_row_holds_it(admission: Admission) -> None:
    messages: dict[MessageKind, RunnableMessage] = {
        MessageKind.FREE: row("x", 1, worker=WORKER[admission.role]),
        MessageKind.RETURNED: handed_back("x", 1, 2),
        MessageKind.CRITICAL: critical_run("x"),
        MessageKind.PENDING: row("x", 1),
    }
    if admission.kind is MessageKind.PENDING:
        assert admission.verdict is Verdict.HOLD  # so a strategy never has one
        return
    stage = stage_in(admission.role, admission.state)
    assert stage.worker.may_run(messages[admission.kind]) is (admission.verdict is not Verdict.HOLD)


# --- the rows that messages lead to ------------------------------------------------------------------------------------


class Rows:
    """An observer that notes the rows which were used."""

    def __init__(self, *stages: Stage) -> None:
        self.used: set[Transition | Admission] = set()
        for stage in stages:
            stage.worker.observer = self

    def moved(self, address: Address, worker: WorkerId, row: Any) -> None:
        self.used.add(row)

    def emitted(self, sender: Address, worker: WorkerId, output: Output | CriticalOutput) -> None: ...

    def started(self, worker: WorkerId, message: RunnableMessage) -> None: ...

    def executed(self, worker: WorkerId, message: RunnableMessage) -> None: ...


def test_one_round_at_a_lessor_and_one_at_a_lessee_use_every_row() -> None:
    lessor, lessee = Stage(says={"W": (critical(D, "V"),)}), Stage(2)
    rows = Rows(lessor, lessee)
    lessor.steering.elsewhere["b"] = 2

    lessor.receives(row("a", 1), row("b", 2)).is_in(RUNNABLE)
    lessor.receives(handed_back("b", 1, 2)).runs("a", "b")  # returned while RUNNABLE
    lessor.receives(program(1, "W0", cut=((10, 1, 4),), one=1), row("p", 5))  # pending while RUNNABLE
    lessor.receives(row("c", 3)).is_in(RUNNABLE)  # free, although its upstream has a program
    lessor.receives(program(1, "W0", sender=T, one=1)).is_in(DRAINING)
    lessor.receives(row("d", 4), row("q", 6), handed_back("e", 2, 2)).runs("c", "d", "e").is_in(BLOCKED)
    lessor.receives(row("t", 1, sender=T), row("r", 7))  # T's cut is 0, so both are pending
    lessor.receives(handed_back("f", 3, 2)).is_in(DRAINING).runs("f").is_in(BLOCKED)
    lessor.receives(reply(1, 2, returned=3)).is_in(CRITICAL)
    lessor.receives(row("s", 8)).runs("W0").is_in(RUNNABLE)
    lessor.runs("p", "q", "t", "r", "s")
    lessor.receives(program(2, "W", cut=((10, 1, 8),))).runs("W").is_in(CRITICAL)  # until D has acknowledged
    lessor.receives(row("u", 2, sender=T), program_ack(1, to=A, by=D)).is_in(RUNNABLE).runs("u")
    lessor.steering.elsewhere["g"] = 2
    lessor.receives(row("g", 9), program(3, "X", cut=((10, 1, 9),))).is_in(BLOCKED)
    lessor.receives(row("v", 3, sender=T)).is_idle()  # free, while BLOCKED

    lessee.receives(forwarded("a", 1, 2)).runs("a")
    lessee.receives(sync_request(1, 2, forwards=2), forwarded("b", 2, 2)).is_in(DRAINING).runs("b").is_in(BLOCKED)
    lessee.receives(row("t", 1, sender=T, worker=2), unsync(1, 2)).is_in(RUNNABLE).runs("t")

    # RUNNABLE is the hot path of a lessee, and a critical message goes straight to the strategy: these two rows only answer
    # the question whether a kept message may run.
    asked_only = {ADMIT[Role.LESSEE, RUNNABLE, MessageKind.FREE], ADMIT[Role.LESSOR, CRITICAL, MessageKind.CRITICAL]}
    assert {*TRANSITIONS, *ADMISSIONS} - rows.used == asked_only


# --- the error ---------------------------------------------------------------------------------------------------------


def test_a_protocol_error_tells_the_rule_who_broke_it_and_the_story() -> None:
    stage = Stage().receives(program(1, "W", cut=((10, 1, 1),)))
    with pytest.raises(ProtocolError) as caught:
        stage.receives(row("x", 1, sender="job/stranger/0", origin=9))
    error = caught.value
    assert error.rule == "send-along-edges"
    assert error.who == "job/a/0@w1"
    assert error.story == (f"program 1 of {S}: cut ((10, 1, 1),)", "RUNNABLE -> DRAINING: a barrier is ready")
    assert str(error) == (
        "job/a/0@w1 broke the rule 'send-along-edges': job/stranger/0 sent to it but is not among its upstream actors\n"
        "  its story so far:\n"
        "    program 1 of job/s/0: cut ((10, 1, 1),)\n"
        "    RUNNABLE -> DRAINING: a barrier is ready"
    )


def test_a_protocol_error_without_a_story_is_one_line() -> None:
    assert str(ProtocolError("table", "a@w1", "it did that")) == "a@w1 broke the rule 'table': it did that"


def test_a_protocol_error_survives_pickling() -> None:
    error = ProtocolError("table", "a@w1", "it did that", ["first", "then"])
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is ProtocolError
    assert (twin.rule, twin.who, twin.what, twin.story) == ("table", "a@w1", "it did that", ("first", "then"))
    assert str(twin) == str(error)


def test_a_story_keeps_only_its_last_lines() -> None:
    stage = Stage()
    for number in range(1, 101):
        stage.receives(program(number, "W")).runs("W")
    with pytest.raises(ProtocolError) as caught:
        stage.receives(program(102, "W"))
    assert len(caught.value.story) == 48
    assert caught.value.story[-1] == "CRITICAL -> RUNNABLE: critical messages executed, own programs acknowledged"


@pytest.mark.parametrize(
    ("worker", "message", "rule"),
    [
        (1, row("x", 1, sender=D), "send-along-edges"),
        (1, program(1, "W", sender=D), "send-along-edges"),
        (1, program(2, "W"), "one-program-at-a-time"),
        (1, forwarded("x", 1, 1), "one-hop"),
        (1, sync_request(1, 1), "addressed"),
        (1, program_ack(1, to=A, by=S), "send-along-edges"),
        (2, row("x", 1, sender=D, worker=2), "send-along-edges"),
        (2, handed_back("x", 1, 2), "one-hop"),
        (2, reply(1, 2), "addressed"),
        (2, program(1, "W"), "addressed"),
        (2, intent(1, 2), "addressed"),
    ],
)
def test_a_message_that_cannot_be_right_raises_and_nothing_happens(worker: WorkerId, message: Any, rule: str) -> None:
    stage = Stage(worker)
    with pytest.raises(ProtocolError) as caught:
        stage.receives(message)
    assert caught.value.rule == rule
    stage.sends_nothing().is_in(RUNNABLE).is_idle()
    assert stage.told() == ""
