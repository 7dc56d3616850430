"""That the peers' results are checked as ours are, and that Spark and Flink come back; how fast is no matter."""

import os
import signal
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dirigo.cli import app
from dirigo_lab.bench.recovery import report
from dirigo_lab.bench.recovery.keyed_rows import StateShape
from dirigo_lab.bench.recovery.kills import AwayTimes, Bystander
from dirigo_lab.bench.recovery.peers.flink import HOW_TO_GET_IT, find_flink
from dirigo_lab.bench.recovery.peers.peer_times import MeasuredPeer, PeerTimes, measure_peer
from dirigo_lab.bench.recovery.peers.row_files import RowFiles, ToldFiles
from dirigo_lab.bench.recovery.peers.started import StartedGroup, ending_in_order
from dirigo_lab.bench.recovery.peers.structured_streaming import StructuredStreamingPeer
from dirigo_lab.bench.recovery.report import QUICK_RECOVERY, RecoveryFigures
from dirigo_lab.bench.recovery.tables import render_peers, render_recovery

SHAPE = StateShape(keys=10, bytes_per_key=100, rows_per_s=100)


@pytest.fixture
def rows(tmp_path: Path) -> RowFiles:
    """All keys, and 25 rows more, so that each key has come two or three times since."""
    made = RowFiles(tmp_path / "rows", SHAPE)
    made.load()
    made.start_ms = 1_000_000
    made._write(range(10, 35))
    return made


def right_line(rows: RowFiles, number: int) -> str:
    return f"{number},{rows.due_ms(number)},{rows.times(number)},{number:020d},100"


def told_of(tmp_path: Path, rows: RowFiles, lines: list[str], *, newest_only: bool = False) -> ToldFiles:
    told = ToldFiles(tmp_path / "told", rows, newest_only=newest_only)
    (told.folder / "part-1").write_text("".join(f"{line}\n" for line in lines))
    told.look()
    return told


def test_rows_are_written_once_each_and_as_ours_are(rows: RowFiles) -> None:
    lines = [line for file in sorted(rows.folder.glob("[!.]*")) for line in file.read_text().splitlines()]
    found = [tuple(map(int, line.split(","))) for line in lines]
    assert [number for number, _, _ in found] == list(range(35))
    assert sorted(key for _, key, _ in found[10:20]) == list(range(10))  # all come in turn
    assert [due for _, _, due in found[9:12]] == [0, 1_000_000, 1_000_010]


def test_only_files_that_are_done_are_forgotten(rows: RowFiles) -> None:
    rows._write(range(35, 40))
    rows.forget(39)
    assert [file.name for file in sorted(rows.folder.iterdir())] == ["rows-0000000035.csv"]


def test_right_results_are_taken_and_none_is_missing(tmp_path: Path, rows: RowFiles) -> None:
    told = told_of(tmp_path, rows, [right_line(rows, number) for number in range(35)])
    assert (told.wrong, told.count, told.missing()) == ([], 35, 0)
    assert told.first_due_after(1_000_100) is not None
    assert told.first_due_after(1_000_000 + 240) is None  # the last was due then


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("12,1000020,3,12,100", "row 12 is number 2 of its key, and was counted as 3"),
        ("12,1000020,1,12,100", "row 12 is number 2 of its key, and was counted as 1"),
        ("12,1000020,2,11,100", "after row 12 its key had 100 bytes of row 11"),
        ("12,1000020,2,12,99", "after row 12 its key had 99 bytes of row 12"),
        ("12,1000021,2,12,100", "a result of row 12, due at 1000021, which never was"),
        ("35,1000250,4,35,100", "a result of row 35, due at 1000250, which never was"),
        ("-1,0,1,-1,100", "a result of row -1, due at 0, which never was"),
        ("12,1000020,2", "a result that is none: 12,1000020,2"),
    ],
)
def test_a_wrong_result_is_seen_and_not_counted(tmp_path: Path, rows: RowFiles, line: str, complaint: str) -> None:
    told = told_of(tmp_path, rows, [line])
    assert told.wrong == [complaint]
    assert told.count == 0
    assert told.first_due_after(0) is None


def test_a_result_that_comes_twice_is_seen(tmp_path: Path, rows: RowFiles) -> None:
    told = told_of(tmp_path, rows, [right_line(rows, 12)])
    (told.folder / "part-2").write_text(right_line(rows, 12))
    told.look()
    assert told.wrong == ["row 12 has a result twice"]


def test_a_file_may_be_written_again_but_not_with_another_content(tmp_path: Path, rows: RowFiles) -> None:
    told = told_of(tmp_path, rows, [right_line(rows, 12)])
    for number, wrong in ((12, []), (13, ["part-1 was told again, and differently"])):
        (told.folder / ".again").write_text(right_line(rows, number) + "\n")
        (told.folder / ".again").rename(told.folder / "part-1")
        told.look()
        assert told.wrong == wrong


def test_a_row_without_a_result_is_missing(tmp_path: Path, rows: RowFiles) -> None:
    told = told_of(tmp_path, rows, [right_line(rows, number) for number in range(35) if number != 17])
    assert told.missing() == 1


def test_of_rows_taken_together_the_newest_of_each_key_must_be_there(tmp_path: Path, rows: RowFiles) -> None:
    told = told_of(tmp_path, rows, [right_line(rows, number) for number in range(25, 34)], newest_only=True)
    assert told.missing() == 1
    (told.folder / "part-2").write_text(right_line(rows, 34))
    told.look()
    assert (told.missing(), told.wrong) == (0, [])


class EndedPeer:
    """Starts, and is gone."""

    name = "Gone"
    killed = "all"
    newest_only = False

    def __init__(self) -> None:
        self.is_closed = False

    def start(self, folder: Path, rows: Path, told: Path, shape: StateShape) -> None:
        self._process = StartedGroup(["sh", "-c", "echo An Error of its own; echo the end"], folder / "said.log", {})
        assert self._process.wait(10) == 0

    def kill(self, number: int) -> float:
        raise AssertionError(number)

    def is_whole(self) -> bool:
        self._process.check(self.name)
        raise AssertionError("it has ended")

    def close(self) -> None:
        self.is_closed = True
        self._process.kill()


def test_a_peer_that_ends_is_told_of_and_closed(tmp_path: Path) -> None:
    peer = EndedPeer()
    found = measure_peer(lambda _: None, peer, tmp_path, state_mb=1, kills=2)
    assert found.wrong == ("Gone ended on its own: An Error of its own",)
    assert found.shown_s == ()
    assert peer.is_closed


def test_a_request_to_end_is_an_exception_for_a_while() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit), ending_in_order():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_killed_group_leaves_none_of_its_processes(tmp_path: Path) -> None:
    started = StartedGroup(["sh", "-c", "sleep 61 & sleep 62 & wait"], tmp_path / "said", {})
    try:
        for _ in range(1_000):
            if len(started.members("sleep 6")) == 3:  # the shell too has the words
                break
    finally:
        found = started.members("sleep 6")
        started.kill()
    assert len(found) == 3
    assert started.members() == []


def test_figures_of_all_stand_by_state_with_ours_first() -> None:
    ours = tuple(AwayTimes(size, 1.0, 1, (0.1,), (0.2,), (0.3,), ()) for size in (1, 100))
    peers = tuple(PeerTimes("Flink", "a task manager", size, times, ()) for size, times in ((1, (1.0, 3.0)), (100, ())))
    table = render_peers(ours, peers)
    assert list(table.columns[0].cells) == ["1 MB", "1 MB", "100 MB", "100 MB"]
    assert list(table.columns[1].cells) == ["Dirigo", "Flink", "Dirigo", "Flink"]
    assert list(table.columns[4].cells) == ["0.30, 0.30", "2.00, 2.98", "0.30, 0.30", "none"]


def test_without_flink_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def pretended(tell: object, peer: MeasuredPeer, folder: Path, state_mb: int, kills: int) -> PeerTimes:
        assert folder.is_dir()
        asked.append(f"{peer.killed} of {peer.name}, {state_mb} MB, {kills} times")
        return PeerTimes(peer.name, peer.killed, state_mb, (1.0,), ())

    monkeypatch.setattr(report, "measure_peer", pretended)
    said: list[str] = []
    sizes = QUICK_RECOVERY.with_kills(2)
    assert len(report.measure_peers(said.append, tmp_path / "peers", sizes)) == 4
    assert said == [HOW_TO_GET_IT]
    assert asked[0] == "an executor of Structured Streaming, 1 MB, 2 times"
    assert asked[3] == "the query of Structured Streaming, 100 MB, 2 times"
    assert not (tmp_path / "peers").exists()


def test_a_folder_without_flink_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no Flink in .*pip install apache-flink"):
        find_flink(tmp_path)
    refused = CliRunner().invoke(app, ["bench", "recovery", "--peers", "--flink", str(tmp_path)])
    assert refused.exit_code == 2
    assert "there is no Flink in" in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(["core", "--peers"], "are of `dirigo bench recovery`"), (["recovery", "--flink", "f"], "add --peers")],
)
def test_options_that_would_do_nothing_are_refused(options: list[str], sentence: str) -> None:
    refused = CliRunner().invoke(app, ["bench", *options])
    assert refused.exit_code == 2
    assert sentence in " ".join(refused.output.split())


@pytest.mark.acceptance
@pytest.mark.parametrize("whole_query", [False, True])
def test_structured_streaming_comes_back_with_right_results(tmp_path: Path, whole_query: bool) -> None:
    peer = StructuredStreamingPeer(whole_query=whole_query)
    found = measure_peer(lambda _: None, peer, tmp_path, state_mb=1, kills=1)
    assert found.wrong == ()
    assert len(found.shown_s) == 1


@pytest.mark.acceptance
def test_flink_comes_back_with_right_results(tmp_path: Path) -> None:
    from dirigo_lab.bench.recovery.peers.flink import FlinkPeer

    if "DIRIGO_FLINK" not in os.environ:
        pytest.skip("DIRIGO_FLINK names no environment with Flink")
    found = measure_peer(lambda _: None, FlinkPeer(Path(os.environ["DIRIGO_FLINK"])), tmp_path, state_mb=1, kills=2)
    assert found.wrong == ()
    assert len(found.shown_s) == 2


def test_a_peer_with_wrong_results_is_told_of_among_all_figures() -> None:
    ours = AwayTimes(1, 1.0, 1, (0.1,), (0.2,), (0.3,), ())
    peer = PeerTimes("Flink", "a task manager", 1, (1.0,), ("row 12 has a result twice",))
    calm = Bystander(1, 1.0, 2.0, 1.0, 2.0, 0, ())
    figures = RecoveryFigures((ours,), (peer,), (), (), (), calm, (1.0, 1.0))
    assert figures.over_budget() == ("Flink with 1 MB: row 12 has a result twice",)
    shown = Console(width=150, record=True, file=StringIO())
    shown.print(render_recovery(figures))
    assert "row 12 has a result twice" in shown.export_text()
