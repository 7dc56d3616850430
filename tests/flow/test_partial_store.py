"""PartialStore: adding, taking away, putting together what several instances have, and staying compact."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.operators.windows.partial_store import COMPACT_ROWS_LEAST, PartialKey, PartialStore


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})


def distinct(slot: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pc.unique(rows.column("n"))], ["n"])


A, B, LATE = PartialKey(0, 0), PartialKey(10, 0), PartialKey(0, 0, is_late=True)


def numbers(piles: PartialStore, key: PartialKey) -> list[int]:
    whole = piles.compact(key)
    return [] if whole is None else sorted(whole.column("n").to_pylist())


def test_a_pile_has_all_that_was_added() -> None:
    piles = PartialStore()
    piles.add(A, batch(1, 2))
    piles.add(B, batch(3))
    piles.add(A, batch(4))
    assert numbers(piles, A) == [1, 2, 4]
    assert piles.buckets() == [0, 10]
    taken = piles.pop(A)
    assert taken is not None
    assert taken.num_rows == 3
    assert piles.pop(A) is None
    piles.drop(B)
    piles.drop(B)
    assert piles.is_identity()


def test_late_rows_lie_apart() -> None:
    piles = PartialStore()
    piles.add(A, batch(1))
    piles.add(LATE, batch(2))
    assert (numbers(piles, A), numbers(piles, LATE)) == ([1], [2])
    assert piles.buckets() == [0]


def test_partial_piles_are_put_together_and_what_is_taken_is_gone() -> None:
    lessor, lessee = PartialStore(distinct), PartialStore(distinct)
    lessor.add(A, batch(1, 2))
    lessee.add(A, batch(2, 3))
    lessee.add(B, batch(9))
    partial = lessee.take()
    assert lessee.is_identity()
    lessor.merge(partial)
    assert numbers(lessor, A) == [1, 2, 3]
    assert numbers(lessor, B) == [9]


def test_a_pile_that_has_grown_is_made_compact() -> None:
    piles = PartialStore(distinct)
    for _ in range(20):
        piles.add(A, batch(*range(COMPACT_ROWS_LEAST // 4)))
    assert piles.partials[A].rows < COMPACT_ROWS_LEAST * 2
    assert numbers(piles, A) == list(range(COMPACT_ROWS_LEAST // 4))


def test_a_pile_that_cannot_be_made_compact_is_not_copied_over_and_over() -> None:
    copied = 0

    def counting(slot: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal copied
        copied += rows.num_rows
        return rows

    piles = PartialStore(counting)
    step = 1000
    for start in range(0, 400_000, step):
        piles.add(A, batch(*range(start, start + step)))
    assert piles.partials[A].rows == 400_000
    assert copied < 3 * 400_000


def test_the_size_is_that_of_the_batches() -> None:
    piles = PartialStore()
    assert piles.size_bytes() == 0
    piles.add(A, batch(1, 2, 3))
    assert piles.size_bytes() == 24
    assert piles.view() is None


def test_putting_piles_together_leaves_it_to_the_next_message_to_make_them_compact() -> None:
    compacted = []

    def noted(slot: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        compacted.append(rows.num_rows)
        return distinct(slot, rows)

    piles = PartialStore(noted)
    piles.merge({A: [batch(*range(100))] * (COMPACT_ROWS_LEAST // 100 + 1)})
    assert not compacted  # a function of the user's may do it
    piles.add(A, batch(7))
    assert len(compacted) == 1
    assert numbers(piles, A) == list(range(100))
