"""A source is SEQUENTIAL at all times: it sends barriers without a round, under the same rule as everybody."""

import pytest

from dirigo.kernel import ProtocolError
from kernel.scenario import AT, A, B, S, Stage, critical, critical_ack, out, program, program_ack, row


def source_stage() -> Stage:
    stage = Stage(AT[S])
    stage.source()
    return stage


def test_a_source_sends_a_barrier_without_a_round() -> None:
    source_stage().emits(out(A, "a"), critical(A, "W")).sends(row("a", 1), program(1, "W", cut=((10, 1, 1),)))


def test_a_source_waits_until_every_barrier_is_acknowledged() -> None:
    stage = source_stage()
    source = stage.source()
    assert not source.is_waiting()
    stage.emits(critical(A, "V"), critical(B, "W"))
    assert source.is_waiting()
    stage.receives(program_ack(1))
    assert source.is_waiting()
    stage.receives(program_ack(1, by=B))
    assert not source.is_waiting()


def test_a_source_that_buffers_still_waits_when_the_acknowledgment_lets_the_next_barrier_go() -> None:
    stage = source_stage()
    source = stage.source()
    stage.emits(critical(A, "V"), critical(A, "W")).receives(program_ack(1))
    assert source.is_waiting()


def test_a_source_knows_which_of_its_barriers_have_been_executed() -> None:
    stage = source_stage().receives(critical_ack(2), critical_ack(1), critical_ack(1, by=B))
    assert stage.worker.participants[S].critical_acked == {A: 2, B: 1}
    stage.sends_nothing()


def test_a_source_takes_no_data() -> None:
    with pytest.raises(ProtocolError, match="received a data message from job/a/0, but it takes none") as caught:
        source_stage().receives(row("x", 1, sender=A, to=S))
    assert caught.value.who == "job/s/0@w10"


def test_a_source_takes_no_barrier() -> None:
    stage = source_stage()
    with pytest.raises(ProtocolError, match="it cannot handle SyncProgram"):
        stage.worker.participants[S].handle(program(1, "W"))


def test_a_source_has_no_mailbox() -> None:
    with pytest.raises(ProtocolError, match="it is a source and has no mailbox"):
        source_stage().worker.instance(S)
