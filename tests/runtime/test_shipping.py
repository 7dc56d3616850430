"""Flows as bytes: a process that has none of the user's files reads them, and runs them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dirigo as dg
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.plan.plan import Plan
from dirigo.runtime.client import shipment as shipping
from dirigo.runtime.client.shipment import manifest_of, ship, unship
from dirigo.runtime.errors import ControlError
from dirigo.runtime.results.sink import LogSink
from runtime.clusters import counting

# A worker: somewhere else, without the user's files. The rows of its job go nowhere but into this process.
STRANGER = """
import json, sys
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.sinks.memory import MemorySink
from dirigo.runtime.client.shipment import unship
from dirigo.scheduling import Fifo
from dirigo.sim.inline import InlineHost

plan = unship(sys.stdin.buffer.read())
outs = {}
for stage in plan.stages:
    if hasattr(stage.operator, "sink"):
        outs[stage.name] = stage.operator.sink = MemorySink(stage.name)
job = BoundJob(plan)
readers = plan.open_splits([reader.address for reader in plan.readers])
InlineHost(job.specs(), Fifo(), lambda: 0.0).run(readers, 1000)
print(json.dumps({name: out.rows for name, out in outs.items()}))
"""


def shipped(flow: dg.Dataflow) -> bytes:
    plan = Plan(flow)
    plan.close_splits()
    return ship(plan, flow.name)


def run_elsewhere(shipment: bytes, folder: Path) -> list[dict[str, Any]]:
    """What a flow gives in another process, in another folder."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", STRANGER], input=shipment, cwd=folder, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    (rows,) = json.loads(done.stdout).values()
    return list(rows)


def test_lambdas_closures_and_classes_of_a_test_go_along(tmp_path: Path) -> None:
    factor = 7

    class Doubling(dg.Function):
        def on_message(self, context: Any, row: Any) -> None:
            context.emit({"n": row.n * 2})

    flow = dg.Dataflow("shipped")
    source = flow.source(dg.from_iterable(lambda: [{"n": k} for k in range(5)], {"n": "int64"}))
    source.map(lambda row: {"n": row.n * factor}, schema={"n": "int64"}).process(Doubling, schema={"n": "int64"}).sink(
        dg.to_memory()
    )
    assert run_elsewhere(shipped(flow), tmp_path / "elsewhere") == [{"n": k * 14} for k in range(5)]


CACHED = """
import functools, sys
import dirigo as dg
from dirigo.flow.plan.plan import Plan
from dirigo.runtime.client.shipment import ship
import rates

@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

class Scale:
    @functools.lru_cache(maxsize=7, typed=True)
    def of(self, n):
        return 10 * n

cached_here = functools.lru_cache(maxsize=5)(lambda n: n + 1)
scale = Scale()

def convert(row):
    assert fibonacci.cache_parameters() == {"maxsize": None, "typed": False}
    assert Scale.of.cache_parameters() == {"maxsize": 7, "typed": True}
    assert fibonacci.__name__ == "fibonacci"
    assert fibonacci.__wrapped__.__globals__["fibonacci"] is fibonacci
    return {"n": fibonacci(row.n) + scale.of(row.n) + cached_here(row.n) + rates.double(row.n)}

flow = dg.Dataflow("cached")
source = flow.source(dg.from_iterable([{"n": k} for k in range(40)]))
source.map(convert, schema={"n": int}).sink(dg.to_memory())
if __name__ == "__main__":
    sys.stdout.buffer.write(ship(Plan(flow), flow.name))
"""


@pytest.mark.parametrize(
    "arguments", [["job.py"], ["-c", "from job import *; sys.stdout.buffer.write(ship(Plan(flow), 'x'))"]]
)
def test_functions_with_a_cache_go_along(arguments: list[str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "rates.py").write_text("import functools\n@functools.lru_cache\ndef double(n):\n    return 2 * n\n")
    (home / "job.py").write_text(CACHED)
    done = subprocess.run([sys.executable, *arguments], cwd=home, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    numbers = [row["n"] for row in run_elsewhere(done.stdout, tmp_path / "elsewhere")]
    fibonacci = [0, 1]
    while len(fibonacci) < 40:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    assert numbers == [fibonacci[k] + 10 * k + k + 1 + 2 * k for k in range(40)]


def test_functions_with_a_cache_of_installed_packages_are_named() -> None:
    extensions = shipping._extensions
    flow = dg.Dataflow("named")
    source = flow.source(dg.from_iterable([{"n": 1}]))
    source.map(lambda row: {"n": len(extensions()) + row.n}, {"n": int}).sink(dg.to_nothing())
    shipment = shipped(flow)
    assert b"_extensions" in shipment
    assert b"dirigo.commands" not in shipment  # which is in the body of that function


JOB_FILE = """
import dirigo as dg
from helpers.prices import Price, in_euros
import rates

def convert(row):
    return {"euros": in_euros(Price(row.n)) * rates.SCALE}

flow = dg.Dataflow("prices")
source = flow.source(dg.from_iterable(lambda: [{"n": k} for k in range(4)], {"n": "int64"}))
source.map(convert, schema={"euros": "float64"}).sink(dg.to_memory())
"""


def test_a_job_file_with_imports_from_its_own_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "helpers").mkdir(parents=True)
    (home / "helpers" / "__init__.py").touch()
    (home / "helpers" / "prices.py").write_text(
        "from dataclasses import dataclass\nfrom helpers.constants import RATE\n"
        "@dataclass\nclass Price:\n    amount: int\n"
        "def in_euros(price):\n    return price.amount * RATE\n"
    )
    (home / "helpers" / "constants.py").write_text("RATE = 0.5\n")
    (home / "rates.py").write_text("SCALE = 10\n")
    (home / "job.py").write_text(JOB_FILE)
    imports = "import sys; from job import flow; from dirigo.flow.plan.plan import Plan"
    imports += "; from dirigo.runtime.client.shipment import ship"
    program = f"{imports}; sys.stdout.buffer.write(ship(Plan(flow), flow.name))"
    done = subprocess.run([sys.executable, "-c", program], cwd=home, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert run_elsewhere(done.stdout, tmp_path / "elsewhere") == [{"euros": k * 5.0} for k in range(4)]


def test_a_job_file_that_is_run_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "rates.py").write_text("def double(n):\n    return 2 * n\n")
    (home / "job.py").write_text(
        "import sys\nimport dirigo as dg\nfrom dirigo.flow.plan.plan import Plan\n"
        "from dirigo.runtime.client.shipment import ship\nimport rates\n"
        "from typing import NamedTuple\nclass Row(NamedTuple):\n    n: int\n"
        "flow = dg.Dataflow('main')\n"
        "source = flow.source(dg.from_iterable(lambda: [{'n': k} for k in range(3)], {'n': 'int64'}))\n"
        "source.map(lambda row: {'n': rates.double(row.n)}, schema=Row).sink(dg.to_memory())\n"
        "sys.stdout.buffer.write(ship(Plan(flow), flow.name))\n"
    )
    done = subprocess.run([sys.executable, "job.py"], cwd=home, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert run_elsewhere(done.stdout, tmp_path / "elsewhere") == [{"n": 0}, {"n": 2}, {"n": 4}]


def test_relative_paths_mean_the_folder_of_whoever_submits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    pq.write_table(pa.table({"n": [1, 2]}), home / "input.parquet")
    (home / "more.csv").write_text("n\n3\n")
    monkeypatch.chdir(home)
    flow = dg.Dataflow("paths")
    csv = flow.source(dg.from_csv("more.csv", {"n": "int64"}))
    flow.source(dg.from_parquet("input.parquet")).union(csv).sink(dg.to_parquet("results"))
    shipment = shipped(flow)
    assert sorted(row["n"] for row in run_elsewhere(shipment, tmp_path / "elsewhere")) == [1, 2, 3]
    monkeypatch.chdir(tmp_path)
    (operator,) = [stage.operator for stage in BoundJob(unship(shipment)).plan.stages if hasattr(stage.operator, "sink")]
    assert operator.sink.place == home / "results"


def test_what_belongs_to_whoever_submits_stays_there() -> None:
    lock = threading.Lock()  # nobody can pickle it
    flow = dg.Dataflow("outside")
    source = flow.source(dg.from_iterable(lambda: [{"n": 1}], {"n": "int64"}))
    source.sink(dg.to_callback(lambda row: lock.acquire(timeout=row.n)))
    source.sink(dg.to_console(file=sys.stdout))
    out = dg.to_memory()
    source.sink(out)
    plan = unship(shipped(flow))
    sinks = [stage.operator.sink for stage in plan.stages if hasattr(stage.operator, "sink")]
    assert [type(sink) for sink in sinks] == [LogSink] * 3
    assert [type(each.sink).__name__ for each in BoundJob(flow).outside_sinks()] == [
        "CallbackSink",
        "ConsoleSink",
        "MemorySink",
    ]


def test_rows_that_were_collected_before_do_not_travel() -> None:
    flow, out = counting(rows=200_000)
    dg.testing.run(flow, writes=True)
    assert len(out.rows) > 1_000
    assert len(shipped(flow)) < 20_000


@pytest.mark.parametrize(
    "what", [lambda: (n for n in [1]), threading.Lock, lambda: sys.stdout], ids=["generator", "lock", "file"]
)
def test_what_cannot_travel_is_refused_with_a_hint(what: Any) -> None:
    held = what()
    flow = dg.Dataflow("held")
    source = flow.source(dg.from_iterable(lambda: [{"n": 1}], {"n": "int64"}))
    source.map(lambda row: {"n": row.n if held else 0}, schema={"n": "int64"}).sink(dg.to_memory())
    with pytest.raises(ControlError, match=r"'held' cannot be sent to the workers .*inside a function") as caught:
        shipped(flow)
    assert "\n" not in str(caught.value)


def test_a_generator_as_a_source_is_refused_with_a_hint() -> None:
    flow = dg.Dataflow("spent")
    flow.source(dg.from_iterable(({"n": n} for n in range(3)), {"n": "int64"})).sink(dg.to_memory())
    with pytest.raises(ControlError, match="generator"):
        shipped(flow)


def test_a_flow_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "SHIPMENT_BYTES_MOST", 1 << 20)
    rows = [{"n": n} for n in range(1_000_000)]
    flow = dg.Dataflow("large")
    flow.source(dg.from_iterable(rows, {"n": "int64"})).sink(dg.to_memory())
    with pytest.raises(ControlError, match=r"'large' comes to .* MiB"):
        shipped(flow)


def test_shipping_leaves_no_trace_and_minds_modules_of_any_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = set(cloudpickle.list_registry_pickle_by_value())
    (tmp_path / "odd.py").touch()
    for key, name in (("one", "one"), ("alias_of_one", "one"), ("another", "not_its_key")):
        module = types.ModuleType(name)
        module.__file__ = str(tmp_path / "odd.py")
        monkeypatch.setitem(sys.modules, key, module)
    monkeypatch.setitem(sys.modules, "strange", types.SimpleNamespace(__file__=str(tmp_path / "odd.py")))
    monkeypatch.setitem(sys.modules, "nothing", None)
    shipped(counting()[0])
    assert set(cloudpickle.list_registry_pickle_by_value()) == before


def test_a_manifest_says_what_the_controller_has_to_know() -> None:
    flow, _ = counting(splits=3)
    manifest = manifest_of(BoundJob(flow))
    assert list(manifest.sinks) == ["to_memory"]
    partitions, schema = manifest.sinks["to_memory"]
    assert manifest.leaves == partitions > 0
    assert pa.ipc.read_schema(pa.py_buffer(schema)).names == ["key", "count", "total", "window_start", "window_end"]
    assert manifest.pushed == {}
