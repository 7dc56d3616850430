"""The worlds with snapshots. Each is explored with the barriers at every point of its scripts, and on from every cut."""

from __future__ import annotations

from dirigo_lab.verification.world import Actor, World, script

SNAPSHOT_WORLDS: tuple[World, ...] = (
    World(
        "snapshot",
        "a snapshot of an actor with a lessee, behind another one, while executions take time",
        (Actor("U", ("D",), lessees=1), Actor("D", lessees=1)),
        {"S": script("U", "a b")},
        snapshots=1,
        split=True,
    ),
    World(
        "snapshot-direct",
        "a snapshot, while upstreams send to a lessee directly, one of them never",
        (Actor("D", lessees=1, forwards=(), direct=(0,)),),
        {"S": script("D", "a b"), "T": script("D", "|1")},
        snapshots=1,
    ),
    World(
        "snapshot-of-two",
        "a snapshot over two upstreams, one of which sends SYNC_CHANNELs",
        (Actor("D", lessees=1),),
        {"S": script("D", "a |1 b"), "T": script("D", "x")},
        snapshots=1,
    ),
    World(
        "snapshot-gives-way",
        "a snapshot and a SYNC_ONE of two upstreams, in the same order and in different ones",
        (Actor("D", lessees=1),),
        {"S": script("D", "a #1 b"), "T": script("D", "x #1")},
        snapshots=1,
    ),
    World(
        "snapshot-void-goes-on",
        "a snapshot that gave way goes on as void, to an actor that another upstream reaches whole",
        (Actor("U", ("D",)), Actor("D", lessees=1)),
        {"S": script("U", "a #1"), "T": script("U", "#1"), "V": script("D", "v #1")},
        snapshots=1,
    ),
    World(
        "snapshot-of-three",
        "a SYNC_ONE of three upstreams that gets a snapshot out of its way while the third has sent nothing",
        (Actor("D"),),
        {"S": script("D", "#1"), "T": script("D", "#1 x"), "V": script("D", "v #1")},
        snapshots=1,
    ),
    World(
        "two-snapshots",
        "two snapshots, and a SYNC_ONE before, between or behind them",
        (Actor("D"),),
        {"S": script("D", "a #1"), "T": script("D", "#1 x")},
        snapshots=2,
    ),
    World(
        "snapshot-ones-of-two",
        "SYNC_ONEs that functions bear, against snapshots that come by the same ways",
        (Actor("A", ("D",), ones_on=frozenset({"a1"})), Actor("B", ("D",), ones_on=frozenset({"x1"})), Actor("D")),
        {"S": script("A", "a1"), "T": script("B", "x1")},
        snapshots=1,
    ),
    World(
        "snapshot-ends",
        "a source and the actor behind it end before a snapshot, or behind it",
        (Actor("U", ("D",)), Actor("D", lessees=1)),
        {"S": script("U", "a ."), "T": script("D", "x |1 y")},
        snapshots=1,
    ),
    World(
        "snapshot-ends-in-one",
        "an upstream ends right behind its part of a SYNC_ONE, which the other's snapshot is ahead of",
        (Actor("D", lessees=1),),
        {"S": script("D", "a #1 ."), "T": script("D", "#1 x #2")},
        snapshots=1,
    ),
    World(
        "snapshot-timer",
        "timers that are set at lessees and at the lessor, and go off at any time around a snapshot",
        (Actor("D", lessees=1, timer_on=frozenset({"a", "b"})),),
        {"S": script("D", "a b")},
        snapshots=1,
    ),
    World(
        "snapshot-alone",
        "messages that ask to run alone around a snapshot",
        (Actor("D", lessees=1, alone_on=frozenset({"a"})),),
        {"S": script("D", "a b"), "T": script("D", "x")},
        snapshots=1,
        split=True,
    ),
    World(
        "snapshot-born",
        "critical messages are born on a lessee around a snapshot",
        (Actor("U", ("D",), lessees=1, born_on=frozenset({"a"})), Actor("D")),
        {"S": script("U", "a b")},
        snapshots=1,
    ),
    World(
        "snapshot-replica",
        "lessees read what was restored, and what rounds leave after it",
        (Actor("D", lessees=1, direct=(0,), replicated=True),),
        {"S": script("D", "a b |1 c")},
        snapshots=1,
    ),
    World(
        "snapshot-twice",
        "any message may be delivered twice around a snapshot",
        (Actor("D", lessees=1),),
        {"S": script("D", "a b")},
        snapshots=1,
        duplicates=1,
        duplicates_data=True,
    ),
)
