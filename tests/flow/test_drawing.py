"""Drawings of flows: what is in them, that nothing a user writes breaks them, and that drawing touches no source."""

import re
from collections.abc import Sequence

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.plan.drawing import COLUMNS_MAX, as_mermaid, as_text
from dirigo.flow.plan.picture import Picture
from dirigo.flow.sources.source import Source, Split
from flow.flows import TS_SCHEMA, ScriptedSource, event, run_inline

BIDS = {"auction": int, "price": int, "ts": int}
SIGNS = """" ' ` # ; < > [ ] { } ( ) | \\ $$ %%{init: {}}%% --> *a* _b_ ~~c~~ &amp; #quot; style:x#1; 日本"""


def bids(flow: dg.Dataflow, name: str = "bids", splits: int = 1) -> dg.Stream:
    return flow.source(dg.from_iterable([], BIDS, time="ts"), name=name, splits=splits)


def shop() -> dg.Dataflow:
    """Two sources, a union, a window with late rows, a join, and a sink for errors."""
    flow = dg.Dataflow("shop", on_error="side_output", slo=dg.SLO(latency="200ms", throughput="50k/s", target=0.995))
    auctions = flow.source(dg.from_iterable([], {"id": int, "ts": int}, time="ts", out_of_orderness="2s"), name="auctions")
    high = bids(flow).union(bids(flow, "more"), name="all").filter(dg.col("price") > 10, name="high")
    counts = high.key_by("auction").window(dg.Tumbling("10s")).aggregate(n=dg.count()).named("counts")
    counts.late.sink(dg.to_memory(), name="late_bids")
    counts.select("auction", "n").key_by("auction").scan(max, name="newest").join(
        auctions, on={"auction": "id"}, name="joined"
    ).sink(dg.to_memory(), name="results")
    flow.errors.sink(dg.to_memory(), name="bad_rows")
    return flow


def mermaid_ids(drawing: str) -> dict[str, str]:
    """The name of each stage by its id."""
    return dict(re.findall(r"(stage\d+)\W+<b>([^<]*)</b>", drawing))


def mermaid_arrows(drawing: str) -> set[tuple[str, str, str, str]]:
    """Sender, kind of line, label, receiver."""
    names = mermaid_ids(drawing) | {"flow": "flow"}
    found = re.findall(r'^ *(\w+) (-->|-\.->)\|"([^"]*)"\| (\w+)$', drawing, flags=re.MULTILINE)
    return {(names[sender], line, label, names[receiver]) for sender, line, label, receiver in found}


# --- Mermaid -------------------------------------------------------------------------------------------------------------


def test_mermaid_has_every_stage_with_its_shape_and_every_way_with_its_label() -> None:
    drawing = as_mermaid(shop())
    assert drawing.startswith('flowchart TB\n    subgraph flow["shop"]\n')
    assert mermaid_arrows(drawing) == {
        ("bids", "-->", "onward", "all"),
        ("more", "-->", "onward", "all"),
        ("all", "-->", "by auction", "counts"),
        ("all", "-.->", "late for counts", "late_bids"),
        ("counts", "-->", "by auction", "newest"),
        ("newest", "-->", "left, by auction", "joined"),
        ("auctions", "-->", "right, by id", "joined"),
        ("joined", "-->", "onward", "results"),
        ("flow", "-.->", "errors", "flow.errors"),
        ("flow.errors", "-->", "onward", "bad_rows"),
    }
    assert '(["<b>bids</b><br>source rows, time ts<br><i>x1, parallel</i>"]):::source' in drawing
    assert '["<b>all</b><br>union<br>high#58; filter price #62; 10<br><i>x1, parallel</i>"]:::operator' in drawing
    assert '[("<b>results</b><br>sink to_memory<br><i>x4, ordered</i>")]:::sink' in drawing


def test_only_what_follows_the_errors_stands_outside_the_frame_that_they_come_from() -> None:
    inside, outside = as_mermaid(shop()).split("\n    end\n")
    assert set(mermaid_ids(outside).values()) == {"flow.errors", "bad_rows"}
    assert set(mermaid_ids(inside).values()) >= {"bids", "counts", "late_bids", "results"}


def test_nothing_that_a_user_writes_can_end_a_label_or_mean_something_in_it() -> None:
    flow = dg.Dataflow("end")
    rows = flow.source(dg.from_iterable([], {"a": str, SIGNS: int}), name="subgraph")
    rows.filter(dg.col("a") != SIGNS).key_by(SIGNS).aggregate(n=dg.count()).named("__init__").sink(dg.to_memory(), name="1.")
    drawing = as_mermaid(flow)
    labels = re.findall(r'"(.*?)"', drawing)
    assert len(labels) == 1 + 3 + 2  # the frame, three boxes and two arrows
    for label in labels:
        text = re.sub(r"</?[bi]>|<br>", " ", label)
        assert not set(re.sub(r"#\d+;", "", text)) & set('"`#;<>[]{}|\\$%*~&:'), text
    written = [re.sub(r"#(\d+);", lambda sign: chr(int(sign[1])), label) for label in labels]
    assert f"by {SIGNS}" in written
    assert f"filter a != {SIGNS!r}" in written[1]
    assert "<b>#95;#95;init#95;#95;</b>" in drawing  # else bold, in Markdown
    assert "<b>#49;.</b>" in drawing  # else a list


# --- text ----------------------------------------------------------------------------------------------------------------


def test_text_reads_from_top_to_bottom() -> None:
    flow = dg.Dataflow("short")
    high, low = bids(flow), bids(flow, "other")
    high.union(low).filter(dg.col("price") > 10).key_by("auction").window(dg.Tumbling("10s")).aggregate(n=dg.count()).named(
        "counts"
    ).sink(dg.to_memory(), name="results")
    assert as_text(flow) == (
        "short: 5 stages, 11 actors\n"
        "\n"
        "╭─ bids ──────────────── x1, parallel ─╮\n"
        "│ source rows, time ts                 │\n"
        "╰─┬────────────────────────────────────╯\n"
        "  ╰── onward ──▶ union\n"
        "\n"
        "╭─ other ─────────────── x1, parallel ─╮\n"
        "│ source rows, time ts                 │\n"
        "╰─┬────────────────────────────────────╯\n"
        "  │ onward\n"
        "  ▼\n"
        "┌─ union ─────────────── x1, parallel ─┐\n"
        "│ filter price > 10                    │\n"
        "└─┬────────────────────────────────────┘\n"
        "  │ by auction\n"
        "  ▼\n"
        "┌─ counts ────────────── x4, parallel ─┐\n"
        "│ aggregate n, tumbling 10s by auction │\n"
        "└─┬────────────────────────────────────┘\n"
        "  │ onward\n"
        "  ▼\n"
        "╔═ results ══════════════ x4, ordered ═╗\n"
        "║ sink to_memory                       ║\n"
        "╚══════════════════════════════════════╝\n"
    )


def test_text_tells_late_rows_errors_and_the_objective() -> None:
    drawing = as_text(shop())
    assert drawing.startswith("shop: 11 stages, 23 actors, latency 200ms and 50,000 rows/s for 99.5 % of rows\n")
    assert "  ├╌╌ late for counts ╌╌▶ late_bids\n  │ by auction\n  ▼\n┌─ counts ─" in drawing
    assert "  ┊ errors, from every stage above\n  ▼\n┌─ flow.errors ─" in drawing
    assert "source rows, time ts, up to 2s out of order" in drawing
    assert drawing.index("─ flow.errors ─") > drawing.index("═ late_bids ═")


def test_where_ways_part_each_arrow_says_after_which_step() -> None:
    flow = dg.Dataflow("parting")
    rows = bids(flow)
    rows.sink(dg.to_memory(), name="raw")
    cheap = rows.filter(dg.col("price") < 5, name="cheap").select("auction").named("thin")
    cheap.sink(dg.to_memory(), name="bargains")
    cheap.deduplicate("auction", name="once").sink(dg.to_memory(), name="seen")
    drawing = as_text(flow)
    assert "│ ↳ cheap: filter price < 5 → thin: select auction │" in drawing
    assert "── after thin: onward ──▶ bargains\n" in drawing
    assert "── after thin: by auction ──▶ once\n" in drawing
    assert "  │ onward\n  ▼\n╔═ raw ═" in drawing


def test_no_line_is_wider_than_a_terminal_and_all_frames_align() -> None:
    flow = dg.Dataflow("wide" * 30)
    rows = flow.source(dg.from_iterable([], {"a": str, SIGNS * 2: int}), name="n" * 120)
    rows.filter(dg.col("a") != SIGNS * 10).sink(dg.to_memory(), name="s" * 95)
    for width in (3, 40):
        wide = rows.filter(dg.col("a") != "日本" * width).filter(bool)
        wide.key_by(SIGNS * 2).aggregate(n=dg.count()).sink(dg.to_memory())
    lines = as_text(flow).splitlines()
    columns = [len(line) + len(re.findall("[日本]", line)) for line in lines]
    assert max(columns) == COLUMNS_MAX
    assert {width for line, width in zip(lines, columns, strict=True) if line[:1] in "╭│╰┌└╔║╚" and line} == {COLUMNS_MAX}
    assert max(map(len, lines)) <= COLUMNS_MAX
    assert any("…" in line for line in lines)  # nobody reads a filter of a thousand characters here


def test_a_control_character_does_not_reach_the_terminal() -> None:
    flow = dg.Dataflow("bell")
    rows = flow.source(dg.from_iterable([], {"a\x1b[31m": int}))
    rows.key_by("a\x1b[31m").aggregate(n=dg.count()).sink(dg.to_memory())
    assert "\x1b" not in as_text(flow) + as_mermaid(flow)


def test_a_drawing_is_always_the_same() -> None:
    assert as_text(shop()) == as_text(shop())
    assert as_mermaid(shop()) == as_mermaid(shop())


# --- sources are left alone ----------------------------------------------------------------------------------------------


def test_a_generator_can_still_be_run_after_it_was_drawn() -> None:
    flow = dg.Dataflow("once")
    out = dg.to_memory()
    flow.source(dg.from_iterable((event("a", n, n) for n in range(3)), TS_SCHEMA)).sink(out)
    assert as_text(flow) == as_text(flow)
    as_mermaid(flow)
    run_inline(flow)
    assert [row["value"] for row in out.rows] == [0, 1, 2]


class Untouchable(Source):
    def splits(self, wanted: int) -> Sequence[Split]:
        raise AssertionError("it was opened")


def test_no_source_is_opened_and_what_it_decides_later_is_told_as_a_range() -> None:
    flow = dg.Dataflow("closed", partitions=2)
    rows = flow.source(Untouchable(pa.schema([("a", pa.int64())]), name="far", is_bounded=True), splits=3)
    rows.sink(dg.to_memory(), name="copy")
    rows.key_by("a").aggregate(n=dg.count()).named("counts").sink(dg.to_memory(), name="results")
    drawing = as_text(flow)
    assert "closed: 4 stages, 6 to 10 actors" in drawing
    assert re.search(r"─ far ─+ x1 to 3, parallel ─", drawing)
    assert re.search(r"═ copy ═+ x1 to 3, ordered ═", drawing)
    assert re.search(r"─ counts ─+ x2, parallel ─", drawing)


@pytest.mark.parametrize("draw", [as_text, as_mermaid])
def test_a_flow_without_a_sink_cannot_be_drawn(draw: object) -> None:
    flow = dg.Dataflow("open")
    flow.source(ScriptedSource([], TS_SCHEMA))
    assert callable(draw)
    with pytest.raises(dg.FlowError, match="'open' has no sink"):
        draw(flow)


def test_what_an_operator_is_limited_to_is_told() -> None:
    flow = dg.Dataflow("limits")
    stream = flow.source(dg.from_iterable([{"n": 1}]), name="some").limited(lessees_max=2)
    stream.union(stream, name="none").limited(lessees_max=0).sink(dg.to_memory(name="out"))
    other = flow.source(dg.from_iterable([{"n": 1}]), name="in_order").limited(lessees_max=2)
    other.deduplicate("n", name="once").limited(lessees_max=2).sink(dg.to_memory(name="out_2"))
    assert {box.name: box.marks for box in Picture(flow).boxes} == {
        "some": "x1, parallel at 3 workers",
        "none": "x1, at home",
        "in_order": "x1, ordered",  # for the sake of what is behind it
        "once": "x4, ordered",
        "out": "x1, ordered",
        "out_2": "x4, ordered",
    }
