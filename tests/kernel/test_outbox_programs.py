"""The barriers that a participant sends: what one program holds, what it cuts, and what waits for its acknowledgment."""

import pytest

from dirigo.kernel import CriticalOutput, Output, ProtocolError
from kernel.scenario import (
    AT,
    A,
    B,
    D,
    E,
    S,
    Stage,
    critical,
    critical_ack,
    forwarded,
    grant,
    out,
    program,
    program_ack,
    registration,
    reply,
    row,
    sync_request,
    unsync,
)


def source_stage(*outputs: str) -> Stage:
    stage = Stage(AT[S])
    stage.source()
    return stage.emits(*(out(A, word) for word in outputs)).forgets()


# --- one program at a time ---------------------------------------------------------------------------------------------


def test_a_program_carries_the_critical_message_and_the_last_id() -> None:
    source_stage("a", "b").emits(critical(A, "W")).sends(program(1, "W", cut=((10, 1, 2),)))


def test_nothing_follows_a_program_until_it_is_acknowledged() -> None:
    stage = source_stage().emits(critical(A, "W"), out(A, "a"), out(A, "b")).sends(program(1, "W"))
    stage.receives(program_ack(1)).sends(row("a", 1), row("b", 2))


def test_an_unacknowledged_program_does_not_hold_what_goes_to_another_actor() -> None:
    stage = source_stage().emits(critical(A, "W"), out(B, "b"), critical(B, "V"))
    stage.sends(program(1, "W"), row("b", 1, to=B), program(1, "V", to=B, cut=((10, 7, 1),)))


def test_an_acknowledgment_that_nobody_awaits_releases_nothing() -> None:
    stage = source_stage().emits(critical(A, "V")).receives(program_ack(1)).emits(critical(A, "W"), out(A, "a")).forgets()
    stage.receives(program_ack(1), program_ack(3)).sends_nothing()
    stage.receives(program_ack(2)).sends(row("a", 1))
    stage.receives(program_ack(2)).sends_nothing()
    assert stage.told(S).splitlines() == [
        "dropped a stale acknowledgment of program 1 by job/a/0",
        "dropped a stale acknowledgment of program 3 by job/a/0",
        "dropped a stale acknowledgment of program 2 by job/a/0",
    ]


# --- what one program holds --------------------------------------------------------------------------------------------


def test_critical_messages_in_a_row_are_merged_into_one_program() -> None:
    stage = source_stage().emits(critical(A, "U"), critical(A, "V"), critical(A, "W")).sends(program(1, "U"))
    stage.receives(program_ack(1)).sends(program(2, "V", "W"))


def test_a_regular_message_in_between_starts_a_new_program_after_the_acknowledgment() -> None:
    stage = source_stage().emits(critical(A, "U"), critical(A, "V"), out(A, "a"), critical(A, "W")).sends(program(1, "U"))
    stage.receives(program_ack(1)).sends(program(2, "V"))
    stage.receives(program_ack(2)).sends(row("a", 1), program(3, "W", cut=((10, 1, 1),)))


def test_each_sync_one_is_a_program_of_its_own() -> None:
    stage = source_stage().emits(
        critical(A, "U"),
        critical(A, "V"),
        critical(A, "X", one=True),
        critical(A, "Y", one=True),
        critical(A, "Z"),
        critical(A, "W"),
    )
    stage.sends(program(1, "U"))
    stage.receives(program_ack(1)).sends(program(2, "V"))
    stage.receives(program_ack(2)).sends(program(3, "X", one=1))
    stage.receives(program_ack(3)).sends(program(4, "Y", one=2))
    stage.receives(program_ack(4)).sends(program(5, "Z", "W"))


def test_sync_channel_blocks_the_sender_and_sync_one_all_upstream_actors_of_the_target() -> None:
    stage = source_stage().emits(critical(A, "V")).receives(program_ack(1)).emits(critical(A, "W", one=True))
    blocks = [message.blocks for message in stage.worker.outgoing if hasattr(message, "blocks")]
    assert blocks == [("job/s/0",), ("job/s/0", "job/t/0")]


def test_a_final_critical_message_ends_its_program_and_marks_it() -> None:
    stage = source_stage().emits(critical(A, "U"), critical(A, "V"), critical(A, "end", final=True))
    stage.sends(program(1, "U")).receives(program_ack(1)).sends(program(2, "V", "end", final=True))


@pytest.mark.parametrize("late", [critical(A, "late"), out(A, "late")])
def test_nothing_follows_a_final_critical_message(late: Output | CriticalOutput) -> None:
    stage = source_stage().emits(critical(A, "end", final=True))
    with pytest.raises(ProtocolError, match="it has ended towards job/a/0 but sends 'late'"):
        stage.emits(late)
    stage.receives(program_ack(1))
    with pytest.raises(ProtocolError, match="it has ended towards job/a/0 but sends 'late'"):
        stage.emits(late)


def test_nothing_follows_a_final_critical_message_that_still_waits() -> None:
    stage = source_stage().emits(critical(A, "U"), critical(A, "end", final=True), out(A, "late"))
    with pytest.raises(ProtocolError, match="it has ended towards job/a/0 but sends 'late'"):
        stage.receives(program_ack(1))


def test_deadlines_travel_with_the_critical_messages() -> None:
    stage = source_stage()
    stage.emits(
        critical(A, "U"),
        CriticalOutput(A, "V", created=1.0, deadline=6.0),
        CriticalOutput(A, "W", created=2.0, deadline=7.0),
    )
    stage.forgets().receives(program_ack(1))
    (sent,) = stage.worker.outgoing
    assert [(one.created, one.deadline) for one in sent.criticals] == [(1.0, 6.0), (2.0, 7.0)]  # type: ignore[union-attr]


# --- the cut -----------------------------------------------------------------------------------------------------------


def test_a_cut_names_every_channel_that_was_used_and_no_other() -> None:
    stage = source_stage("a")
    stage.steering.direct = {"x": 3, "y": 2}
    stage.emits(out(A, "x"), out(A, "y")).receives(grant(1, 3), grant(2, 2)).forgets()
    stage.emits(critical(A, "W")).sends(program(1, "W", cut=((10, 1, 1), (10, 2, 1), (10, 3, 1))))


def test_a_channel_not_used_since_the_last_barrier_is_not_named_again() -> None:
    stage = source_stage("a").emits(critical(A, "V")).receives(program_ack(1)).forgets()
    stage.emits(critical(A, "W")).sends(program(2, "W")).receives(program_ack(2))
    stage.emits(out(A, "b"), critical(A, "X")).sends(row("b", 2), program(3, "X", cut=((10, 1, 2),)))


def test_a_program_closes_the_channels_to_the_lessees_of_its_target_only() -> None:
    stage = source_stage()
    stage.steering.direct = {"x": 2, "y": 2}
    stage.emits(out(A, "x"), out(B, "y")).receives(grant(1, 2), grant(1, 2, by=B)).emits(critical(A, "W"))
    stage.receives(program_ack(1)).forgets()
    stage.emits(out(B, "y"), out(A, "x")).sends(row("y", 2, to=B, worker=2), registration(3, 2))


def test_the_ids_of_lessees_go_into_the_next_program_to_the_actor_that_they_concern() -> None:
    stage = Stage(says={"V": (critical(D, "d"),), "W": (critical(E, "e"), critical(D, "f"))})
    stage.steering.elsewhere = {"a": 2}
    stage.receives(row("a", 1), program(1, "V", cut=((10, 1, 1),)))
    stage.sends(forwarded("a", 1, 2), program_ack(1), sync_request(1, 2, forwards=1))
    stage.receives(reply(1, 2, "a", sent=((D, 5, 4), (D, 8, 2), (E, 6, 3)))).runs("V")
    stage.sends(program(1, "d", sender=A, to=D, cut=((2, 5, 4), (2, 8, 2))))
    stage.receives(program_ack(1, to=A, by=D)).sends(critical_ack(1), unsync(1, 2, closed=(D,)))
    # What concerns E was kept; what concerns D was told, and is told no more.
    stage.receives(program(2, "W")).runs("W").sends(
        program_ack(2), program(1, "e", sender=A, to=E, cut=((2, 6, 3),)), program(2, "f", sender=A, to=D)
    )


def test_the_ids_of_lessees_survive_barriers_that_send_no_program() -> None:
    stage = Stage(says={"W": (critical(D, "d"),)})
    stage.steering.elsewhere = {"a": 2, "b": 2, "c": 3}
    stage.receives(row("a", 1), program(1, "U", cut=((10, 1, 1),)), reply(1, 2, sent=((D, 5, 1),))).runs("U")
    stage.receives(row("b", 2), row("c", 3), program(2, "V", cut=((10, 1, 3),)))
    stage.receives(reply(2, 3, sent=((D, 5, 1),)), reply(2, 2, sent=((D, 5, 2),))).runs("V").forgets()
    stage.receives(program(3, "W")).runs("W")
    stage.sends(program_ack(3), program(1, "d", sender=A, to=D, cut=((2, 5, 2), (3, 5, 1))))


def test_a_critical_message_for_one_of_two_actors_cuts_that_one_only() -> None:
    stage = Stage(says={"a": (out(D, "x"), out(E, "y")), "W": (critical(D, "d"), out(D, "p"), out(E, "q"))})
    stage.receives(row("a", 1)).runs("a").receives(program(1, "W", cut=((10, 1, 1),))).forgets().runs("W")
    stage.sends(program(1, "d", sender=A, to=D, cut=((1, 5, 1),)), row("q", 2, sender=A, to=E))
    stage.receives(program_ack(1, to=A, by=D)).sends(row("p", 2, sender=A, to=D), critical_ack(1))
