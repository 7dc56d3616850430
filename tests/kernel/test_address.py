"""Addresses of actors, and the names of instances."""

import pytest

from dirigo.kernel import actor_address, instance_name, job_of


def test_an_address_is_job_operator_and_partition() -> None:
    assert actor_address("bids", "max", 3) == "bids/max/3"
    assert actor_address("bids", "max") == "bids/max/0"


def test_the_job_can_be_read_from_an_address() -> None:
    assert job_of(actor_address("bids", "max", 3)) == "bids"


def test_an_instance_is_named_by_address_and_worker() -> None:
    assert instance_name("bids/max/3", 7) == "bids/max/3@w7"


@pytest.mark.parametrize(
    ("job", "operator", "named"), [("", "max", "''"), ("bids", "", "''"), ("a/b", "c", "'a/b'"), ("a", "b/c", "'b/c'")]
)
def test_a_name_that_would_make_addresses_ambiguous_is_refused(job: str, operator: str, named: str) -> None:
    with pytest.raises(ValueError, match=f"non-empty and without '/', but got {named}"):
        actor_address(job, operator)
