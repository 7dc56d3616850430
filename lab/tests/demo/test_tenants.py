"""Two tenants on one pool: in the simulator, where nothing disturbs, strategies must show what they are for."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from dirigo import FlowError
from dirigo.flow.api.files import load_flows
from dirigo_lab.demo.isolation import NOISE, Isolation, measure, neighbours
from dirigo_lab.demo.picture import save_pictures
from dirigo_lab.demo.tenants import bulk, urgent
from dirigo_lab.experiments.simulated_tenants import simulate_tenants

WORKERS = 4
SECONDS = 5.0


def run(strategy: str, load: str = "pareto") -> dict[str, float]:
    tenants = [replace(urgent(WORKERS), load=load), replace(bulk(WORKERS), load=load)]
    run = simulate_tenants(tenants, strategy, SECONDS, WORKERS)
    return {name: tenant.satisfaction for name, tenant in run.tenants.items()} | {
        f"{name} rows/s": tenant.rows_per_s for name, tenant in run.tenants.items()
    }


def test_under_bursts_reject_send_serves_the_urgent_tenant_and_the_bulky_one_loses_nothing() -> None:
    fifo, reject_send = run("fifo"), run("reject_send")
    assert reject_send["q7"] > fifo["q7"] + 0.3
    assert reject_send["q12_event rows/s"] > 0.9 * fifo["q12_event rows/s"]


def test_under_constant_load_it_is_no_worse() -> None:
    fifo, reject_send = run("fifo", "constant"), run("reject_send", "constant")
    assert reject_send["q7"] >= fifo["q7"]
    assert reject_send["q12_event"] >= fifo["q12_event"]


def isolation(strategy: str, runs: int = 1) -> Isolation:
    """As long as the demo: of fewer results, the 99th percentile would be the very last one."""
    seeds = count()  # two runs, a quiet and a noisy one, have to differ in that only, so they share a seed
    return measure(
        strategy, WORKERS, runs, lambda tenants, name: simulate_tenants(tenants, name, 30.0, WORKERS, seed=next(seeds) // 2)
    )


@pytest.mark.acceptance
def test_a_noisy_neighbour_is_hardly_felt_with_reject_send() -> None:
    reject_send = isolation("reject_send", runs=3)
    assert reject_send.factor < 1.5
    assert reject_send.noisy_satisfaction == 1.0


def test_a_noisy_neighbour_is_not_felt_with_tokens_and_very_much_with_fifo() -> None:
    tokens, fifo = isolation("tokens"), isolation("fifo")
    assert tokens.factor < 1.5
    assert fifo.factor > 20
    assert fifo.noisy_satisfaction < 0.25  # those of the first seconds, before there was a backlog


def test_the_noisy_neighbour_sends_ten_times_as_much() -> None:
    (behaved, quiet), (still_behaved, noisy) = neighbours(WORKERS, 1.0), neighbours(WORKERS, NOISE)
    assert behaved == still_behaved
    assert noisy.bids_per_s == pytest.approx(10 * quiet.bids_per_s)
    assert noisy.utilisation(WORKERS) > 1.0


def test_a_run_becomes_a_picture_and_a_page(tmp_path: Path) -> None:
    tenants = [urgent(2), bulk(2)]
    runs = [simulate_tenants(tenants, name, 2.0, 2) for name in ("fifo", "edf")]
    png, html = save_pictures(runs, "a <title>", ["one & all"], [["job", "p50"], ["q7", "1"]], tmp_path / "out" / "latency")
    assert png.read_bytes().startswith(b"\x89PNG")
    page = html.read_text()
    assert "a &lt;title&gt;" in page
    assert "one &amp; all" in page
    assert "<td>q7</td>" in page


def test_a_query_that_reads_more_than_bids_is_refused() -> None:
    with pytest.raises(FlowError, match="a tenant reads bids only, but q3 reads more"):
        replace(urgent(WORKERS), query="q3").flow(1.0)


def test_the_urgent_tenant_alone_is_a_file_for_commands() -> None:
    (flow,) = load_flows(Path(__file__).parents[2] / "examples/urgent_tenant.py")
    assert flow.name == urgent(WORKERS).query
