"""Every invariant can fail: a ledger is told a story that breaks it, and no other."""

import pytest

from dirigo.kernel import Lane
from dirigo.kernel.mailbox import TRANSITIONS, Event, Role
from dirigo_lab.verification.checker import ALONE, CRITICAL, DATA, INVARIANTS, Fact, Ledger, ViolationError

CONSOLIDATED = next(row for row in TRANSITIONS if row.event is Event.CONSOLIDATED)
ROUND_ENDS = next(row for row in TRANSITIONS if row.event is Event.ROUND_ENDS)
HOME, AWAY = 1, 2


Story = Fact | list[Fact]


def produced(*payloads: str, at: int = 0, sequential: bool = True, alone: str = "", sender: str = "U") -> Fact:
    """One execution's outputs in their order: ``x!`` is a critical message, ``x?`` asks to run alone."""
    kinds = {"!": CRITICAL, "?": ALONE}
    return ("produced", sender, at, tuple((each, kinds.get(each[-1], DATA)) for each in payloads), sequential, alone)


def emitted(payload: str, critical: bool = False, sender: str = "U") -> list[Fact]:
    """An output that leaves as soon as it was produced."""
    made = ((payload, CRITICAL if critical else DATA),)
    return [("produced", sender, 0, made, True), ("emitted", sender, payload, critical)]


def left(*payloads: str, sender: str = "U") -> list[Fact]:
    """Outputs that were produced before and leave now."""
    return [("emitted", sender, payload, payload.endswith("!")) for payload in payloads]


def ran(payload: str, at: int = HOME, lane: Lane = Lane.INPUT, seq: int = 1, sender: str = "U") -> list[Fact]:
    return [("started", at, False), ("executed", at, sender, 0, payload, lane, seq, (), None)]


def ran_critical(*payloads: str, contents: tuple[tuple[str, int], ...] = (), sender: str = "U") -> list[Fact]:
    facts: list[Fact] = [("moved", CONSOLIDATED)]
    for index, payload in enumerate(payloads):
        counted = tuple((earlier, 1) for earlier in payloads[: index + 1])  # a critical message is counted as well
        facts += [
            ("started", HOME, True),
            ("executed_critical", HOME, ((sender, payload),), False, False, (*contents, *counted)),
        ]
    return [*facts, ("moved", ROUND_ENDS)]


def tell(*story: Story, upstreams: tuple[str, ...] = ("U",), ordered: bool = False) -> Ledger:
    ledger = Ledger("D", HOME, upstreams, ordered)
    for item in story:
        for fact in item if isinstance(item, list) else [item]:
            ledger.note(fact)
    return ledger


def broken_by(*story: Story, upstreams: tuple[str, ...] = ("U",), ordered: bool = False) -> str:
    with pytest.raises(ViolationError) as caught:
        tell(*story, upstreams=upstreams, ordered=ordered).finish()
    assert caught.value.invariant in INVARIANTS
    return caught.value.invariant


def test_a_proper_story_breaks_nothing() -> None:
    tell(
        emitted("a"),
        emitted("1", critical=True),
        emitted("b"),
        ran("a", at=AWAY, lane=Lane.FORWARD),
        ran_critical("1", contents=(("a", 1),)),
        ran("b"),
    ).finish()


def test_a_critical_message_before_its_dependency() -> None:
    assert broken_by(emitted("a"), emitted("1", critical=True), ran_critical("1")) == "dependency-before-critical"


def test_a_pending_message_before_the_critical_message() -> None:
    assert broken_by(emitted("1", critical=True), emitted("b"), ran("b")) == "critical-before-pending"


def test_a_message_that_runs_twice() -> None:
    assert broken_by(emitted("a"), ran("a"), ran("a")) == "exactly-once"


def test_a_message_that_nobody_emitted() -> None:
    assert broken_by(ran("ghost")) == "exactly-once"


def test_a_message_that_is_emitted_twice() -> None:
    assert broken_by(emitted("a"), emitted("a")) == "exactly-once"


def test_a_message_that_never_runs() -> None:
    assert broken_by(emitted("a")) == "no-deadlock"


def test_a_critical_message_that_never_runs() -> None:
    assert broken_by(emitted("1", critical=True)) == "no-deadlock"


def test_critical_messages_in_the_wrong_order() -> None:
    story: list[Story] = [emitted("1", critical=True), emitted("2", critical=True)]
    assert broken_by(*story, ran_critical("2")) == "critical-log"


def test_a_state_that_lacks_something() -> None:
    assert broken_by(emitted("a"), emitted("1", critical=True), ran("a"), ran_critical("1")) == "consolidated-state"


def test_a_state_that_has_something_twice() -> None:
    story: list[Story] = [emitted("a"), emitted("1", critical=True), ran("a")]
    assert broken_by(*story, ran_critical("1", contents=(("a", 2),))) == "consolidated-state"


def test_a_message_that_starts_while_the_lessor_is_critical() -> None:
    assert broken_by(emitted("a"), ("moved", CONSOLIDATED), ran("a", at=AWAY)) == "lessor-alone"


def test_a_lessor_that_becomes_critical_while_a_lessee_runs() -> None:
    assert broken_by(emitted("a"), ("started", AWAY, False), ("moved", CONSOLIDATED)) == "lessor-alone"


def test_a_critical_message_at_a_lessee() -> None:
    story: list[Fact] = [*emitted("1", critical=True), ("executed_critical", AWAY, (("U", "1"),), False, False, ())]
    assert broken_by(story) == "lessor-alone"


def test_a_lessee_does_not_become_critical() -> None:
    assert all(row.role is Role.LESSOR for row in TRANSITIONS if row.event is Event.CONSOLIDATED)


def test_a_sync_one_without_one_of_its_upstreams() -> None:
    story: list[Fact] = [
        *emitted("1", critical=True),
        ("moved", CONSOLIDATED),
        ("started", HOME, True),
        ("executed_critical", HOME, (("U", "1"),), True, False, ()),
    ]
    assert broken_by(story, upstreams=("U", "V")) == "sync-one-complete"


# --- the order of production -------------------------------------------------------------------------------------------


def test_an_output_that_overtakes_a_critical_message_of_its_execution() -> None:
    assert broken_by(produced("c!", "x"), left("x", "c!"), ran("x")) == "order-of-production"


def test_an_output_that_overtakes_a_critical_message_of_an_earlier_execution() -> None:
    story: list[Story] = [produced("c!", sequential=False), produced("x", sequential=False), left("x", "c!")]
    assert broken_by(*story, ran("x")) == "order-of-production"


def test_an_output_that_a_later_critical_message_leaves_behind() -> None:
    story: list[Story] = [produced("x", sequential=False), produced("c!", sequential=False), left("c!", "x")]
    assert broken_by(*story, ran_critical("c!")) == "order-of-production"


def test_instances_that_are_not_alone_have_no_order_among_each_other() -> None:
    story: list[Story] = [
        produced("c!", sequential=False),
        produced("x", at=AWAY, sequential=False),
        left("x", "c!"),
        ran("x"),
    ]
    tell(*story, ran_critical("c!", contents=(("x", 1),))).finish()


def test_a_critical_message_of_an_actor_that_is_alone_concerns_all_its_instances() -> None:
    story: list[Story] = [produced("x", at=AWAY, sequential=False), produced("c!"), left("c!", "x")]
    assert broken_by(*story, ran_critical("c!")) == "order-of-production"


def test_what_runs_alone_in_a_critical_message_stands_where_it_was_asked_for() -> None:
    story: list[Story] = [produced("x?", "c!"), produced("d!", alone="x?"), left("d!", "c!")]
    tell(*story, ran_critical("d!", "c!")).finish()
    assert broken_by(*story[:2], left("c!", "d!"), ran_critical("c!")) == "order-of-production"


def test_outputs_that_are_never_emitted() -> None:
    assert broken_by(produced("c!")) == "exactly-once"


def test_an_output_that_no_function_produced() -> None:
    assert broken_by(left("x"), ran("x")) == "exactly-once"


def test_two_ledgers_are_equal_if_only_the_order_between_instances_differs() -> None:
    here, there = produced("x", "y!", sequential=False), produced("z", at=AWAY, sequential=False)
    assert tell(here, there).freeze() == tell(there, here).freeze()
    fence = produced("c!")
    assert tell(here, fence, there).freeze() != tell(there, fence, here).freeze()


def test_what_was_asked_to_run_alone_and_never_did() -> None:
    assert broken_by(("asked", "timer")) == "exactly-once"


def test_a_gap_in_the_ids() -> None:
    assert broken_by(emitted("a"), ("sent", ("input", "U", 0, HOME), 2, "lessor to lessor", "U", "a")) == "ids-gapless"


def test_a_forward_that_runs_at_the_lessor() -> None:
    assert broken_by(emitted("a"), ran("a", at=HOME, lane=Lane.FORWARD)) == "one-hop"


def test_a_returned_message_that_runs_at_a_lessee() -> None:
    assert broken_by(emitted("a"), ran("a", at=AWAY, lane=Lane.RETURN)) == "one-hop"


def test_an_ordered_function_away_from_home() -> None:
    assert broken_by(emitted("a"), ran("a", at=AWAY), ordered=True) == "ordered-at-home"


def test_an_ordered_function_out_of_order() -> None:
    assert broken_by(emitted("a"), emitted("b"), ran("b", seq=2), ordered=True) == "ordered-at-home"


def test_a_replica_that_is_behind() -> None:
    story: list[Story] = [emitted("a"), emitted("1", True), emitted("b"), ran("a"), ran_critical("1", contents=(("a", 1),))]
    read: list[Fact] = [("started", AWAY, False), ("executed", AWAY, "U", 0, "b", Lane.FORWARD, 1, (("b", 1),), (("b", 1),))]
    assert broken_by(*story, read) == "replica-current"


def test_an_acknowledgment_that_is_missing() -> None:
    assert broken_by(("owes", "receipt", AWAY, 1)) == "acknowledged"


def test_an_acknowledgment_that_comes_twice() -> None:
    assert (
        broken_by(("owes", "receipt", AWAY, 1), ("pays", "receipt", AWAY, 1), ("pays", "receipt", AWAY, 1)) == "acknowledged"
    )


def test_an_unsync_before_the_own_program_is_acknowledged() -> None:
    assert broken_by(("program_sent", "E", 1), ("unsynced",)) == "acknowledged"


def test_a_second_program_before_the_first_is_acknowledged() -> None:
    assert broken_by(("program_sent", "E", 1), ("program_sent", "E", 2)) == "acknowledged"
