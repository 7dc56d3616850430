"""What lessees cost their lessor is measured on the parts of real workers."""

from dirigo_lab.experiments.costs.barrier_shares import measure_shares


def test_a_lessor_sends_to_all_and_takes_in_all_replies() -> None:
    shares = measure_shares(3, 4)
    # A microsecond is less than Python takes for either, and ten milliseconds more than any machine.
    assert 1e-6 < shares.send_s < 0.01
    assert 1e-6 < shares.reply_s < 0.01
