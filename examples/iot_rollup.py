"""Readings of thermometers are rolled up to Parquet, a row per room and quarter of an hour, and warm rooms are reported.

``python examples/iot_rollup.py [FOLDER]`` needs no Spark, and writes to the folder or to a temporary one. It prints averages
of half an hour that are too high, looked at every ten minutes, and then what a second flow makes of the Parquet files:

    server too warm until 09:30: 24.1
    server too warm until 09:40: 24.7
    server too warm until 09:50: 24.7
    server too warm until 10:00: 24.1
    server: 8 quarters of an hour, 20.0 to 25.0 degrees
    attic: 8 quarters of an hour, 16.0 to 21.0 degrees

``dirigo run examples/iot_rollup.py`` runs the rollup on Spark, and writes to out/iot_rollup.
"""

import sys
from datetime import UTC, datetime, timedelta
from math import sin, tau
from tempfile import TemporaryDirectory
from typing import Any

import dirigo as dg

BEGIN = datetime(2026, 5, 1, 9, tzinfo=UTC)
SENSORS = [{"sensor": 0, "room": "server"}, {"sensor": 1, "room": "server"}, {"sensor": 2, "room": "attic"}]
AVERAGES = [22.5, 22.5, 18.5]
READINGS = 3 * 720  # of each sensor one every ten seconds, for two hours


def readings(first: int, count: int) -> list[dict[str, Any]]:
    """The readings with these numbers: waves around the average of each sensor."""
    rows = []
    for number in range(first, first + count):
        sensor, at = number % 3, BEGIN + timedelta(seconds=number // 3 * 10)
        rows.append({"sensor": sensor, "at": at, "celsius": AVERAGES[sensor] + 2.5 * sin(tau * number / READINGS)})
    return rows


def rollup(folder: str) -> dg.Dataflow:
    flow = dg.Dataflow("iot-rollup")
    columns = {"sensor": int, "at": datetime, "celsius": float}
    read = flow.source(dg.from_generator(readings, columns, READINGS, time="at", name="readings"))
    by_room = read.join_table(SENSORS, on="sensor").key_by("room")
    quarters = by_room.window(dg.Tumbling("15m")).aggregate(low=dg.min("celsius"), high=dg.max("celsius"))
    quarters.sink(dg.to_parquet(folder, mode="overwrite"))
    averages = by_room.window(dg.Sliding("30m", every="10m")).aggregate(celsius=dg.avg("celsius"))
    warm = averages.filter(dg.col("celsius") > 24)
    warm.select("room", "celsius", until=dg.col("window_end").format_time("%H:%M")).sink(dg.to_memory(name="warm"))
    return flow


def summary(folder: str) -> dg.Dataflow:
    flow = dg.Dataflow("iot-summary")
    by_room = flow.source(dg.from_parquet(folder)).key_by("room")
    by_room.aggregate(quarters=dg.count(), low=dg.min("low"), high=dg.max("high")).sink(dg.to_memory())
    return flow


flow = rollup("out/iot_rollup")

if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        folder = sys.argv[1] if len(sys.argv) > 1 else temporary
        for row in dg.run(rollup(folder)).rows("warm"):
            print(f"{row['room']} too warm until {row['until']}: {row['celsius']:.1f}")
        for row in dg.run(summary(folder)).rows():
            print(f"{row['room']}: {row['quarters']} quarters of an hour, {row['low']:.1f} to {row['high']:.1f} degrees")
