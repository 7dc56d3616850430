"""The snapshots of one job in a folder: written, found again after a loss, and removed when nobody needs them any more.

Everything here blocks, and no call depends on the one before it: a host may make each on a thread of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from dirigo.runtime.snapshots.addresses import folder_name, job_of_folder, place_at
from dirigo.runtime.snapshots.blobs import BlobRef, end_of, number_and_generation, part_name, read_blob, write_blobs
from dirigo.runtime.snapshots.errors import DamagedSnapshot, SnapshotError
from dirigo.runtime.snapshots.local_place import UNFINISHED
from dirigo.runtime.snapshots.manifest import (
    JOB_FILE,
    SnapshotManifest,
    StoredJob,
    manifest_name,
    number_of,
    read_manifest,
    read_record,
    write_record,
)
from dirigo.runtime.snapshots.places import Buffer, Place

KEPT_SNAPSHOTS: Final = 3


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as it is listed. Of one whose manifest is damaged, only the job and the number are known."""

    job: str
    number: int
    is_whole: bool  # the manifest is, and its files are there; their content is looked at when it is read
    name: str = ""
    generation: int = 0
    began_s: float = 0.0
    duration_s: float = 0.0
    written_bytes: int = 0
    total_bytes: int = 0
    alive_bytes: int = 0  # of all files that it keeps from being removed
    is_final: bool = False
    problem: str = ""  # why its manifest cannot be read

    def age_s(self, now_s: float) -> float:
        """How long ago it was complete, given the time since 1970."""
        return max(0.0, now_s - self.began_s - self.duration_s)


class SnapshotStore:
    """The folder of one job, in a folder that is named by a URI or an absolute path."""

    def __init__(self, root_uri: str, job: str) -> None:
        self.job = job
        self.place: Place = place_at(root_uri).within(folder_name(job))
        self._checked: set[str] = set()  # part files whose header was right

    def prepare(self) -> None:
        """Make the folder, and find out whether it can be written. Only here folders are made."""
        self.place.make()

    # --- writing ---

    def write_part(
        self, number: int, generation: int, worker: int, blobs: Sequence[Sequence[Buffer]], piece: int = 0
    ) -> list[BlobRef]:
        """Write what a worker has for a snapshot, and return where each blob is once all are durable.

        A worker that does not have all at once writes several pieces, each with a number of its own.
        """
        return write_blobs(self.place, part_name(number, generation, worker, piece), blobs) if blobs else []

    def write_manifest(self, manifest: SnapshotManifest) -> None:
        """From its return on, the snapshot exists."""
        if manifest.job != self.job:
            raise SnapshotError(
                f"A manifest of job '{manifest.job}' does not belong into '{self.place.shown}'; write it into its own."
            )
        write_record(self.place, manifest_name(manifest.number), manifest)

    def write_job(self, job: StoredJob) -> None:
        write_record(self.place, JOB_FILE, job)

    def forget_job(self) -> None:
        """The job is not to be begun again; its snapshots stay."""
        self.place.remove_files([JOB_FILE])

    # --- reading ---

    def read_job(self) -> StoredJob | None:
        """What a service needs to begin the job again; none if it was never written."""
        return read_record(self.place, JOB_FILE, StoredJob) if JOB_FILE in self.place.files() else None

    def read(self, ref: BlobRef) -> memoryview:
        """A blob, in memory that is the caller's own. Raises ``DamagedSnapshot`` if it is not what was written."""
        return read_blob(self.place, ref, self._checked)

    def manifest(self, number: int) -> SnapshotManifest:
        """One snapshot, by its number."""
        return read_manifest(self.place, number)

    def manifests(self) -> list[SnapshotInfo]:
        """All snapshots, in order."""
        return snapshots_in(self.place, self.job)

    def newest(self, complaints: list[str], damaged: Collection[int] = ()) -> SnapshotManifest | None:
        """The last snapshot that is whole. ``complaints`` tells why later ones are not; ``damaged`` are passed over."""
        files = self.place.files()
        for number in reversed(numbers_in(files)):
            if number in damaged:
                continue
            try:
                return whole_manifest(self.place, number, files)
            except DamagedSnapshot as error:
                complaints.append(f"Snapshot {number} of job '{self.job}' cannot be used: {error}")
        return None

    def verify(self, manifest: SnapshotManifest) -> list[str]:
        """Read all blobs of a snapshot, and say what is wrong with them."""
        return verified(self.place, manifest)

    # --- removing ---

    def retain(self, last: int = KEPT_SNAPSHOTS, held: Collection[int] = ()) -> None:
        """Remove what neither the last snapshots need, nor those that are held, nor one that is under way."""
        if last < 1:
            raise SnapshotError(f"Of '{self.place.shown}', the last {last} snapshots cannot be kept; keep 1 or more.")
        files = self.place.files()
        kept = self._last_whole(files, last, held)
        if not kept:
            return
        newest = kept[0]
        kept_numbers = {manifest.number for manifest in kept}
        outdated = [number for number in numbers_in(files) if number < newest.number and number not in kept_numbers]
        # Manifests first, and for good: whoever comes after a crash finds none that lacks a file.
        self.place.remove_files([manifest_name(number) for number in outdated])
        needed = {ref.file for manifest in kept for _, ref in manifest.bodies()}
        self.place.remove_files([file for file in files if file not in needed and _is_behind(file, newest)])

    def remove(self) -> None:
        """Remove the folder of the job with all that it holds; if that fails, at least nobody begins the job again."""
        with contextlib.suppress(SnapshotError):
            self.forget_job()
        self.place.remove()
        self._checked.clear()

    def worth_rewriting(self, manifest: SnapshotManifest) -> set[str]:
        """The places of actors whose body lies in a file that is kept for less than half of its content."""
        files = self.place.files()
        needed: dict[str, int] = {}
        for _, ref in manifest.bodies():
            needed[ref.file] = needed.get(ref.file, 0) + ref.length
        wasteful = {file for file, used in needed.items() if used * 2 < files.get(file, 0)}
        return {place for place, ref in manifest.bodies() if ref.file in wasteful}

    def _last_whole(self, files: Mapping[str, int], most: int, held: Collection[int]) -> list[SnapshotManifest]:
        """The last ones, and of those before them the ones that are held."""
        found: list[SnapshotManifest] = []
        for number in reversed(numbers_in(files)):
            if len(found) >= most and number not in held:
                continue
            try:
                found.append(whole_manifest(self.place, number, files))
            except DamagedSnapshot:
                continue
        return found


def list_snapshots(root_uri: str) -> list[SnapshotInfo]:
    """The snapshots of all jobs in a folder, job by job."""
    root = place_at(root_uri)
    return [info for name in root.folders() for info in snapshots_in(root.within(name), job_of_folder(name))]


def stored_jobs(root_uri: str) -> list[str]:
    """The ids of the jobs that have a folder here."""
    return [job_of_folder(name) for name in place_at(root_uri).folders()]


def prepare_folder(root_uri: str) -> None:
    """Make a folder for the snapshots of many jobs, and find out whether it can be written."""
    place_at(root_uri).make()


def numbers_in(files: Iterable[str]) -> list[int]:
    """The numbers of the snapshots that have a manifest, in order."""
    return sorted(number for number in map(number_of, files) if number is not None)


def snapshots_in(place: Place, job: str) -> list[SnapshotInfo]:
    """The snapshots in one folder, of a job; without its id it is that in each manifest."""
    files = place.files()
    return [_info(place, job, number, files) for number in numbers_in(files)]


def whole_manifest(place: Place, number: int, files: Mapping[str, int]) -> SnapshotManifest:
    """A manifest all of whose files are there."""
    manifest = read_manifest(place, number)
    missing = _missing(manifest, files)
    if missing is not None:
        raise DamagedSnapshot(f"'{missing}' is missing in '{place.shown}', or is too short.")
    return manifest


def verified(place: Place, manifest: SnapshotManifest) -> list[str]:
    complaints = []
    checked: set[str] = set()
    for actor, ref in manifest.bodies():
        try:
            read_blob(place, ref, checked)
        except DamagedSnapshot as error:
            complaints.append(f"The state of '{actor}' in snapshot {manifest.number} cannot be used: {error}")
    return complaints


def _info(place: Place, job: str, number: int, files: Mapping[str, int]) -> SnapshotInfo:
    try:
        manifest = read_manifest(place, number)
    except SnapshotError as error:  # of another version, perhaps: the others can be listed all the same
        return SnapshotInfo(job=job, number=number, is_whole=False, problem=str(error))
    alive = {ref.file for _, ref in manifest.bodies()}
    return SnapshotInfo(
        job=job or manifest.job,
        number=number,
        is_whole=_missing(manifest, files) is None,
        name=manifest.name,
        generation=manifest.generation,
        began_s=manifest.began_s,
        duration_s=manifest.duration_s,
        written_bytes=manifest.written_bytes,
        total_bytes=manifest.total_bytes,
        alive_bytes=sum(files.get(file, 0) for file in alive),
        is_final=manifest.is_final,
    )


def _missing(manifest: SnapshotManifest, files: Mapping[str, int]) -> str | None:
    """A file that a snapshot needs and that is not there as a whole."""
    return next((ref.file for _, ref in manifest.bodies() if files.get(ref.file, -1) < end_of(ref)), None)


def _is_behind(file: str, newest: SnapshotManifest) -> bool:
    """Whether a file is a part that no snapshot under way can be writing: neither a later one, nor a later generation's.

    What actors left at their end has no number, and all later snapshots of its generation need it.
    Or it is what somebody who was killed left of such a part, or of a manifest.
    """
    is_unfinished = file.endswith(UNFINISHED)
    name = file.removeprefix(".").rpartition("-")[0] if is_unfinished else file
    part = number_and_generation(name)
    if part is not None:
        is_end = part == (0, newest.generation)
        return part[0] <= newest.number and part[1] <= newest.generation and not is_end
    number = number_of(name)
    return is_unfinished and number is not None and number <= newest.number
