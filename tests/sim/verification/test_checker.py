"""Every invariant can fail: a ledger is told a story that breaks it, and no other."""

import pytest

from dirigo.kernel import Lane
from dirigo.kernel.mailbox import TRANSITIONS, Event, Role
from dirigo.sim.verification.checker import INVARIANTS, Fact, Ledger, ViolationError

CONSOLIDATED = next(row for row in TRANSITIONS if row.event is Event.CONSOLIDATED)
ROUND_ENDS = next(row for row in TRANSITIONS if row.event is Event.ROUND_ENDS)
HOME, AWAY = 1, 2


def emitted(payload: str, critical: bool = False, sender: str = "U") -> Fact:
    return ("emitted", sender, payload, critical)


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


def tell(*story: Fact | list[Fact], upstreams: tuple[str, ...] = ("U",), ordered: bool = False) -> Ledger:
    ledger = Ledger("D", HOME, upstreams, ordered)
    for item in story:
        for fact in item if isinstance(item, list) else [item]:
            ledger.note(fact)
    return ledger


def broken_by(*story: Fact | list[Fact], upstreams: tuple[str, ...] = ("U",), ordered: bool = False) -> str:
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
    story = [emitted("1", critical=True), emitted("2", critical=True)]
    assert broken_by(story, ran_critical("2")) == "critical-log"


def test_a_state_that_lacks_something() -> None:
    assert broken_by(emitted("a"), emitted("1", critical=True), ran("a"), ran_critical("1")) == "consolidated-state"


def test_a_state_that_has_something_twice() -> None:
    story = [emitted("a"), emitted("1", critical=True), *ran("a")]
    assert broken_by(story, ran_critical("1", contents=(("a", 2),))) == "consolidated-state"


def test_a_message_that_starts_while_the_lessor_is_critical() -> None:
    assert broken_by(emitted("a"), ("moved", CONSOLIDATED), ran("a", at=AWAY)) == "lessor-alone"


def test_a_lessor_that_becomes_critical_while_a_lessee_runs() -> None:
    assert broken_by(emitted("a"), ("started", AWAY, False), ("moved", CONSOLIDATED)) == "lessor-alone"


def test_a_critical_message_at_a_lessee() -> None:
    story: list[Fact] = [emitted("1", critical=True), ("executed_critical", AWAY, (("U", "1"),), False, False, ())]
    assert broken_by(story) == "lessor-alone"


def test_a_lessee_does_not_become_critical() -> None:
    assert all(row.role is Role.LESSOR for row in TRANSITIONS if row.event is Event.CONSOLIDATED)


def test_a_sync_one_without_one_of_its_upstreams() -> None:
    story: list[Fact] = [
        emitted("1", critical=True),
        ("moved", CONSOLIDATED),
        ("started", HOME, True),
        ("executed_critical", HOME, (("U", "1"),), True, False, ()),
    ]
    assert broken_by(story, upstreams=("U", "V")) == "sync-one-complete"


def test_a_barrier_that_leaves_withheld_outputs_behind() -> None:
    assert broken_by(("withheld", "U", (("!", True), ("x", False))), emitted("1", True)) == "outputs-before-barrier"


def test_withheld_outputs_that_are_never_emitted() -> None:
    assert broken_by(("withheld", "U", (("!", True),))) == "exactly-once"


def test_a_withheld_output_before_the_critical_message_it_follows() -> None:
    story = [("withheld", "U", (("!", True), ("x", False))), emitted("x")]
    assert broken_by(*story, ran("x")) == "critical-before-pending"  # "!" has not even been emitted


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
    story = [emitted("a"), emitted("1", True), emitted("b"), *ran("a"), *ran_critical("1", contents=(("a", 1),))]
    read: list[Fact] = [("started", AWAY, False), ("executed", AWAY, "U", 0, "b", Lane.FORWARD, 1, (("b", 1),), (("b", 1),))]
    assert broken_by(story, read) == "replica-current"


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
