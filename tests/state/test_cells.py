"""What user code can do with the cells of its own instance."""

import pytest

from dirigo.state import ListState, MapState, StateSet, ValueState, add
from dirigo.state.list_state import ListCell
from dirigo.state.map_state import MapCell
from dirigo.state.value_state import ValueCell


def value_cell() -> ValueCell[int]:
    cell = StateSet({"x": ValueState(int, default=0, combine=max)}).cell("x")
    assert isinstance(cell, ValueCell)
    return cell


def list_cell() -> ListCell[int]:
    cell = StateSet({"x": ListState(int)}).cell("x")
    assert isinstance(cell, ListCell)
    return cell


def map_cell(with_default: bool = True) -> MapCell[str, int]:
    declaration = MapState(str, int, default=0, combine=add) if with_default else MapState(str, int, combine=add)
    cell = StateSet({"x": declaration}).cell("x")
    assert isinstance(cell, MapCell)
    return cell


def test_value_cell_sets_and_combines() -> None:
    cell = value_cell()
    assert cell.get() == 0
    cell.add(5)
    cell.add(3)
    assert cell.get() == 5
    cell.set(2)
    assert (cell.get(), cell.read()) == (2, 2)


def test_list_cell_collects_and_clears() -> None:
    cell = list_cell()
    cell.append(1)
    cell.extend([2, 3])
    assert (list(cell), len(cell), cell.read()) == ([1, 2, 3], 3, [1, 2, 3])
    cell.clear()
    assert list(cell) == []


def test_map_cell_is_a_map_of_its_own_entries() -> None:
    cell = map_cell()
    cell["a"] = 1
    cell["b"] = 2
    cell.add("a", 10)
    cell.add("c", 3)
    assert dict(cell.items()) == {"a": 11, "b": 2, "c": 3}
    assert (list(cell), list(cell.keys()), list(cell.values()), len(cell)) == (list("abc"), list("abc"), [11, 2, 3], 3)
    del cell["b"]
    assert "b" not in cell
    assert cell.read() == {"a": 11, "c": 3}
    cell.clear()
    assert len(cell) == 0


def test_an_absent_key_gives_the_default_where_there_is_one() -> None:
    assert map_cell()["absent"] == 0
    assert map_cell().read_key("absent") == 0
    assert map_cell().get("absent") is None
    assert map_cell().get("absent", 7) == 7
    bare = map_cell(with_default=False)
    with pytest.raises(KeyError, match="absent"):
        bare["absent"]
    with pytest.raises(KeyError, match="absent"):
        bare.read_key("absent")
    with pytest.raises(KeyError, match="absent"):
        del bare["absent"]


def test_reading_an_absent_key_stores_nothing() -> None:
    states = StateSet({"x": MapState(str, int, default=0, combine=add)})
    assert states.cell("x")["absent"] == 0
    assert states.is_identity()


def test_what_read_returns_is_the_callers_own() -> None:
    states = StateSet(
        {
            "value": ValueState(list[int], default=[], combine=lambda left, right: left + right),
            "items": ListState(list[int]),
            "map": MapState(str, list[int], combine=lambda left, right: left + right),
        }
    )
    states.cell("value").set([1])
    states.cell("items").append([1])
    states.cell("map")["k"] = [1]
    before = states.freeze()
    states.cell("value").read().append(9)
    states.cell("items").read()[0].append(9)
    states.cell("map").read()["k"].append(9)
    states.cell("map").read_key("k").append(9)
    assert states.freeze() == before
