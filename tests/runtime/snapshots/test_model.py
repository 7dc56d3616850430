"""Snapshots, retention, writers that die at any change, stale writers and damage, in any order: what is found again is
always the last snapshot that is whole, with what it held."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dirigo.runtime.snapshots import BlobRef, DamagedSnapshot, SnapshotManifest, SnapshotStore
from dirigo.runtime.snapshots.blobs import end_of
from dirigo.runtime.snapshots.manifest import manifest_name
from runtime.snapshots.jobs import JOB, content_of, manifest_of
from runtime.snapshots.places import MemoryPlace, ProcessDiedError

ACTORS = [f"count/{index}" for index in range(4)]
DIES = st.none() | st.integers(0, 3)


class Snapshots(RuleBasedStateMachine):
    """One job: its folder, and what we know that should be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.place = MemoryPlace()
        self.store = self.new_store()
        self.written: dict[str, bytes] = {}  # what each file held when it was whole
        self.manifests: dict[int, SnapshotManifest] = {}
        self.states: dict[int, dict[str, bytes]] = {}
        self.number = 0
        self.generation = 0

    def new_store(self) -> SnapshotStore:
        store = SnapshotStore("/nowhere", JOB)
        store.place = self.place
        return store

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.place.chance.seed(seed)

    @rule(changed=st.sets(st.sampled_from(ACTORS)), workers=st.integers(1, 3), dies_at=DIES)
    def take(self, changed: set[str], workers: int, dies_at: int | None) -> None:
        """Actors that have not changed name the blob that they named before."""
        before = self.whole()
        bodies = dict(self.bodies_of(before)) if before is not None else {}
        states = dict(self.states[before]) if before is not None else {}
        written = [actor for actor in ACTORS if actor in changed or actor not in bodies]
        self.number += 1
        self.place.dies_at = dies_at
        try:
            for worker in range(workers):
                own = written[worker::workers]
                contents = [f"{actor} {self.number}".encode() * (len(actor) + self.number) for actor in own]
                refs = self.store.write_part(self.number, self.generation, worker, [[content] for content in contents])
                bodies.update(zip(own, refs, strict=True))
                states.update(zip(own, contents, strict=True))
                self.written.update({ref.file: self.place.content[ref.file] for ref in refs})
            manifest = manifest_of(self.number, bodies, self.generation)
            self.manifests[self.number], self.states[self.number] = manifest, states
            self.store.write_manifest(manifest)
        except ProcessDiedError:
            self.begin_again()
        name = manifest_name(self.number)
        if name in self.place.content and self.is_decoded(self.number):
            self.written[name] = self.place.content[name]
        self.place.dies_at = None

    @rule(last=st.integers(1, 4), dies_at=DIES)
    def retain(self, last: int, dies_at: int | None) -> None:
        usable = [info.number for info in self.store.manifests() if info.is_whole][-last:]
        promised = {number for number in usable if self.is_intact(number)}
        before = {name for name in self.place.files() if name.startswith("part")}
        self.place.dies_at = dies_at
        died = False
        try:
            self.store.retain(last)
        except ProcessDiedError:
            died = True
            self.begin_again()
        self.place.dies_at = None
        assert {number for number in promised if not self.is_intact(number)} == set()
        if usable and not died:
            assert {info.number for info in self.store.manifests() if info.number <= usable[-1]} == set(usable)
            needed = {ref.file for number in usable for _, ref in self.bodies_of(number)}
            parts = {name for name in self.place.files() if name.startswith("part")}
            newest = self.manifests[usable[-1]]
            later = {name for name in before if part_of(name)[0] > newest.number or part_of(name)[1] > newest.generation}
            assert parts == needed & before | later

    @rule()
    def begin_again(self) -> None:
        self.generation += 1
        self.store = self.new_store()

    @precondition(lambda self: self.generation > 0)
    @rule(back=st.integers(0, 3))
    def stale_worker_writes(self, back: int) -> None:
        """A worker of the first generation wakes up; it is told nothing, and nobody refers to what it wrote."""
        self.store.write_part(max(1, self.number - back), 0, 99, [[b"stale"]])

    @precondition(lambda self: bool(self.place.content))
    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.place.content)))
        content = bytearray(self.place.content[name])
        how = data.draw(st.sampled_from(("flip", "lose", "cut")))
        if how == "lose":
            del self.place.content[name]
            return
        if content and how == "flip":
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        elif content:
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        self.place.content[name] = bytes(content)

    @invariant()
    def the_last_whole_one_is_found(self) -> None:
        expected = self.whole()
        store = self.new_store()
        damaged: set[int] = set()
        while True:
            manifest = store.newest([], damaged)
            if manifest is None:
                assert expected is None
                return
            try:
                found = content_of(store, manifest)
            except DamagedSnapshot:
                damaged.add(manifest.number)
                continue
            assert manifest.number == expected
            assert found == self.states[manifest.number]
            return

    def whole(self) -> int | None:
        return max((number for number in self.manifests if self.is_intact(number)), default=None)

    def is_intact(self, number: int) -> bool:
        name = manifest_name(number)
        if name not in self.written or self.place.content.get(name) != self.written[name]:
            return False
        return all(self.is_there(ref) for _, ref in self.bodies_of(number))

    def is_there(self, ref: BlobRef) -> bool:
        found, written = self.place.content.get(ref.file, b""), self.written[ref.file]
        return found[:64] == written[:64] and found[ref.offset : end_of(ref)] == written[ref.offset : end_of(ref)]

    def is_decoded(self, number: int) -> bool:
        return any(info.number == number and not info.problem for info in self.store.manifests())

    def bodies_of(self, number: int) -> list[tuple[str, BlobRef]]:
        return [(place, entry.body) for place, entry in self.manifests[number].actors.items() if entry.body is not None]


def part_of(name: str) -> tuple[int, int]:
    _, number, generation, _ = name.split("-")
    return int(number), int(generation)


TestSnapshots = Snapshots.TestCase
TestSnapshots.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
