"""The worlds that ``dirigo verify`` explores to closure. Each is as small as its question allows.

Read a script as: words are messages, ``|1`` is a SYNC_CHANNEL, ``#1`` a SYNC_ONE, ``.`` the end of the stream. A world
counts only if every kind of channel in it carries messages before and after a barrier.
"""

from __future__ import annotations

from dirigo.kernel import CriticalOutput, Output
from dirigo_lab.verification.snapshots.variants import variant_named
from dirigo_lab.verification.snapshots.worlds import SNAPSHOT_WORLDS
from dirigo_lab.verification.world import Actor, Step, World, script


def _to_both(first: str, second: str, text: str) -> tuple[Step, ...]:
    """A script whose every step goes to two actors."""
    return tuple((*left, *right) for left, right in zip(script(first, text), script(second, text), strict=True))


def _sink(**options: object) -> Actor:
    return Actor("D", **options)  # type: ignore[arg-type]


def _relay(**options: object) -> Actor:
    return Actor("U", ("D",), **options)  # type: ignore[arg-type]


WORLDS: tuple[World, ...] = (
    World(
        "two-barriers",
        "an upstream with a lessee into an actor with two lessees, two SYNC_CHANNELs in a row",
        (_relay(lessees=1), _sink(lessees=2, forwards=(0,), direct=(1,))),
        {"S": script("U", "a |1 b |2")},
        split=True,
    ),
    World(
        "overlap",
        "two upstreams with overlapping SYNC_CHANNELs, their messages forwarded",
        (_sink(lessees=1),),
        {"S": script("D", "a |1 b"), "T": script("D", "x |2 y")},
        split=True,
        blind=True,
    ),
    World(
        "overlap-direct",
        "two upstreams with overlapping SYNC_CHANNELs, their messages sent directly",
        (_sink(lessees=1, forwards=(), direct=(0,)),),
        {"S": script("D", "a |1 b"), "T": script("D", "x |2")},
        split=True,
    ),
    World(
        "sync-one",
        "a SYNC_ONE over two upstreams, one with a lessee",
        (_relay(lessees=1), _sink(lessees=1)),
        {"S": script("U", "a #1 b"), "T": script("D", "x #1 y")},
        split=True,
    ),
    World(
        "chain",
        "a chain of three actors: barriers propagate",
        (Actor("A", ("B",)), Actor("B", ("C",), lessees=1, direct=(0,)), Actor("C", (), lessees=1)),
        {"S": script("A", "a |1 b")},
    ),
    World(
        "diamond",
        "a diamond: two paths meet again",
        (Actor("A", ("E",), lessees=1), Actor("B", ("E",)), Actor("E", (), lessees=1)),
        {"S": _to_both("A", "B", "a |1 b")},
    ),
    World(
        "mixed-sending",
        "forwarding and direct sending to the same lessees",
        (_sink(lessees=2, direct=(0, 1)),),
        {"S": script("D", "a b |1 c")},
        split=True,
    ),
    World(
        "all-at-once",
        "an upstream asks for all lessees in one registration, and uses one of them, or both, or none",
        (_sink(lessees=2, forwards=(), direct=(0, 1)),),
        {"S": script("D", "a b |1 c")},
        at_once=True,
        split=True,
    ),
    World(
        "offered-again",
        "what is kept during the barrier of one upstream is offered again after it, and then the other's barrier comes",
        (_sink(lessees=1),),
        {"S": script("D", "a |1 b"), "T": script("D", "x y |2 z")},
        gives_back=True,
        split=True,
    ),
    World(
        "registration-race",
        "registrations race the barriers of their own upstream and of another",
        (_sink(lessees=1, direct=(0,)),),
        {"S": script("D", "a |1 b"), "T": script("D", "|2")},
        split=True,
    ),
    World(
        "born-on-lessee",
        "critical messages are born on a lessee, while a barrier from upstream is under way",
        (_relay(lessees=1, born_on=frozenset({"a", "b"})), _sink(lessees=1)),
        {"S": script("U", "a |1 b")},
        split=True,
    ),
    World(
        "born-in-a-barrier",
        "a critical message is born while a barrier from upstream drains: what runs after it is emitted after it",
        (_relay(born_on=frozenset({"a"})), _sink(lessees=1)),
        {"S": script("U", "a b |1 c")},
        split=True,
    ),
    World(
        "born-ordered",
        "an ordered function bears a critical message while a barrier from upstream drains",
        (_relay(ordered=True, born_on=frozenset({"a"})), _sink(lessees=1, forwards=(), direct=(0,))),
        {"S": script("U", "a b |1 c")},
    ),
    World(
        "two-born",
        "two critical messages are born in a row, before and while a barrier from upstream drains",
        (_relay(born_on=frozenset({"a", "b"})), _sink()),
        {"S": script("U", "a b c |1 d")},
        split=True,
    ),
    World(
        "born-then-more",
        "a lessee bears critical messages, and runs more before the barrier that sends them",
        (_relay(lessees=1, born_on=frozenset({"a", "c"})), _sink()),
        {"S": script("U", "a b |1 c")},
        split=True,
    ),
    World(
        "born-and-handed-back",
        "a lessee bears a critical message and hands another message back, while a barrier from upstream drains",
        (_relay(lessees=1, hands_back=True, born_on=frozenset({"a", "b"})), _sink()),
        {"S": script("U", "a b |1 c")},
    ),
    World(
        "born-of-two",
        "two upstreams of one actor: a critical message is born of one while the barrier of the other drains",
        (_relay(born_on=frozenset({"a"})), _sink()),
        {"S": script("U", "a b"), "T": script("U", "x |1 y")},
        split=True,
    ),
    World(
        "ones-of-two",
        "SYNC_ONEs that two ordered functions bear, while barriers from upstream drain",
        (
            Actor("U", ("D",), ordered=True, ones_on=frozenset({"a1"})),
            Actor("V", ("D",), ordered=True, ones_on=frozenset({"x1"})),
            _sink(),
        ),
        {"S": script("U", "a1 b |1 c"), "T": script("V", "x1 |2 y")},
    ),
    World(
        "ones-to-two",
        "SYNC_ONEs of one actor go to two others, one of which has sent one before",
        (Actor("U", ("D", "E"), ones_on=frozenset({"a2"})), Actor("D"), Actor("E")),
        {"S": script("U", "a2 b"), "T": (*script("E", "x #2"), *script("D", "#2 y"))},
    ),
    World(
        "alone-behind-born",
        "a function asks to run alone, bears a critical message, and speaks when it runs alone",
        (
            _relay(lessees=1, alone_on=frozenset({"a"}), born_on=frozenset({"a", "b"}), speaks_alone=True),
            _sink(),
        ),
        {"S": script("U", "a |1 b")},
    ),
    World(
        "read-replica",
        "lessees read the state of the last round, however they came to their lease",
        (_sink(lessees=2, forwards=(0,), direct=(1,), replicated=True),),
        {"S": script("D", "a |1 b |2 c")},
        split=True,
    ),
    World(
        "mixed-barriers",
        "SYNC_CHANNEL and SYNC_ONE at one actor, one queued behind the other",
        (_sink(lessees=1, forwards=(), direct=(0,)),),
        {"S": script("D", "a #1 |1 b"), "T": script("D", "|2 x #1")},
        split=True,
    ),
    World(
        "two-sync-ones",
        "two SYNC_ONEs in flight",
        (_sink(lessees=1),),
        {"S": script("D", "a #1 b #2 c"), "T": script("D", "x #1 y #2 z")},
        split=True,
    ),
    World(
        "upstream-ends",
        "an upstream ends while another waits for it in a SYNC_ONE",
        (_sink(lessees=1),),
        {"S": script("D", "a #1 b ."), "T": script("D", "#1 x #2 y")},
        split=True,
    ),
    World(
        "no-lessee",
        "an actor that never has a lessee, and barriers that directly follow each other",
        (_relay(), _sink()),
        {"S": script("U", "a |1 |2 b |3 c"), "T": script("D", "x |4 y")},
        split=True,
    ),
    World(
        "silent-lessee",
        "a lessee is granted and never gets a message, because the barrier is faster",
        (_relay(lessees=1, forwards=(), direct=(0,)), _sink(lessees=1, forwards=(), direct=(0,))),
        {"S": script("U", "a |1 b")},
    ),
    World(
        "fork",
        "one actor's barrier goes to two downstream actors",
        (Actor("U", ("D", "E"), lessees=1), Actor("D", (), lessees=1), Actor("E", ())),
        {"S": script("U", "a |1 b")},
    ),
    World(
        "fork-one-side",
        "critical messages go to one of two downstream actors only",
        (Actor("U", ("D", "E"), lessees=1, propagates=("D",)), Actor("D"), Actor("E")),
        {"S": script("U", "a |1 b"), "T": script("E", "|2")},
    ),
    World(
        "swallowed",
        "a barrier that goes no further: the ids collected in its round are for the next one",
        (_relay(lessees=1, swallows=frozenset({"1"})), _sink(lessees=1, forwards=(), direct=(0,))),
        {"S": script("U", "a |1 |2 b")},
    ),
    World(
        "handed-back",
        "lessees hand messages back while barriers come",
        (_sink(lessees=1, hands_back=True),),
        {"S": script("D", "a b |1 c"), "T": script("D", "|2")},
        split=True,
    ),
    World(
        "handed-back-direct",
        "lessees hand messages back that were sent to them directly",
        (_sink(lessees=1, forwards=(), direct=(0,), hands_back=True),),
        {"S": script("D", "a |1 b"), "T": script("D", "|2")},
    ),
    World(
        "incomplete-sync-one",
        "a SYNC_ONE names a lessee and waits, while the other upstream's barrier runs a round",
        (_sink(lessees=1, direct=(0,)),),
        {"S": script("D", "a #1 b"), "T": script("D", "|2 |3 #1")},
    ),
    World(
        "scale-in",
        "a strategy ends all leases at any time, while upstreams send directly and barriers come",
        (_relay(lessees=1), _sink(lessees=1, direct=(0,))),
        {"S": script("U", "a |1 b")},
        scale_ins=("D",),
    ),
    World(
        "twice",
        "any message between actors may be delivered twice",
        (_relay(lessees=1), _sink(lessees=1, direct=(0,))),
        {"S": script("U", "a |1 b")},
        duplicates=1,
        duplicates_data=True,
    ),
    World(
        "scale-in-twice",
        "any control message of a scale-in may be delivered twice",
        (_sink(lessees=1, direct=(0,)),),
        {"S": script("D", "a |1 b")},
        scale_ins=("D",),
        duplicates=1,
    ),
    World(
        "twice-in-a-row",
        "control messages of one round are delivered again in the next, while another upstream sends directly",
        (_sink(lessees=1, forwards=(), direct=(0,)),),
        {"S": script("D", "|1 |2 b"), "T": script("D", "a |3")},
        duplicates=1,
    ),
    World(
        "scale-in-race",
        "an upstream registers again while its grants are being taken back",
        (_sink(lessees=1, direct=(0,)),),
        {"S": script("D", "a b |1 c")},
        scale_ins=("D",),
    ),
    World(
        "ordered",
        "an ordered function: never leased, each channel in its order, whatever overtakes what",
        (_relay(lessees=1), _sink(lessees=1, direct=(0,), ordered=True)),
        {"S": script("U", "a b |1 c")},
    ),
    World(
        "results",
        "critical messages produce regular ones before and after the next barrier",
        (_relay(lessees=1, results=True), _sink(lessees=1, direct=(0,))),
        {"S": script("U", "a |1 b")},
    ),
    World(
        "alone",
        "functions and a strategy start barriers of an actor on itself",
        (_relay(lessees=1), _sink(lessees=1, direct=(0,), alone_on=frozenset({"a"}))),
        {"S": script("U", "a |1 b")},
        injections=("U",),
    ),
    World(
        "injected",
        "a strategy injects a critical message from one actor to another, while barriers come and others are born",
        (_relay(lessees=1, born_on=frozenset({"b"}), alone_in_critical="before", speaks_alone=True), _sink()),
        {"S": script("U", "a |1 b")},
        criticals=(("U", "D"),),
        split=True,
    ),
    World(
        "alone-in-critical",
        "a critical message asks to run alone before it is passed on",
        (_relay(lessees=1, alone_in_critical="before"), _sink()),
        {"S": script("U", "a |1 b |2 c")},
    ),
    World(
        "timers",
        "timers set at a lessor or a lessee move with the partial states, and fire once",
        (_sink(lessees=1, timer_on=frozenset({"a", "b"})),),
        {"S": script("D", "a |1 b")},
        split=True,
    ),
    World(
        "bounded-lessees",
        "at most one of two workers may be leased at a time",
        (_sink(lessees=2, forwards=(0,), direct=(1,), lessees_max=1),),
        {"S": script("D", "a |1 b"), "T": script("D", "|2")},
    ),
    World(
        "several-criticals",
        "a run of critical messages in one program, a regular message between two, both granularities",
        (_relay(lessees=1), _sink(lessees=1)),
        {
            "S": (
                (Output("U", "a"),),
                (CriticalOutput("U", "1"), CriticalOutput("U", "2"), Output("U", "b"), CriticalOutput("U", "3")),
                (Output("U", "c"),),
            )
        },
        split=True,
    ),
    *SNAPSHOT_WORLDS,
)


# Larger relatives of the worlds above, for ``--deep``.
DEEP_WORLDS: tuple[World, ...] = (
    World(
        "deep-born-of-two",
        "two upstreams of one actor: a critical message is born of one while the barrier of the other drains",
        (_relay(born_on=frozenset({"a"})), _sink(lessees=1)),
        {"S": script("U", "a b"), "T": script("U", "x |1 y")},
        split=True,
    ),
    World(
        "deep-ones-of-two",
        "SYNC_ONEs that two ordered functions bear, into an actor with a lessee",
        (
            Actor("U", ("D",), ordered=True, ones_on=frozenset({"a1"})),
            Actor("V", ("D",), ordered=True, ones_on=frozenset({"x1"})),
            _sink(lessees=1),
        ),
        {"S": script("U", "a1 b |1 c"), "T": script("V", "x1 |2 y")},
    ),
    World(
        "deep-overlap",
        "two upstreams with overlapping SYNC_CHANNELs, forwarding and direct sending",
        (_sink(lessees=1, direct=(0,)),),
        {"S": script("D", "a |1 b"), "T": script("D", "x |2 y")},
        split=True,
    ),
    World(
        "deep-registration-race",
        "registrations race barriers, with messages after both barriers",
        (_relay(lessees=1), _sink(lessees=1, forwards=(), direct=(0,))),
        {"S": script("U", "a |1 b"), "T": script("D", "x |2 y")},
    ),
    World(
        "deep-born-on-lessee",
        "critical messages are born on a lessee before and after a barrier",
        (_relay(lessees=1, born_on=frozenset({"a", "b"})), _sink(lessees=1, direct=(0,))),
        {"S": script("U", "a |1 b")},
        split=True,
    ),
    World(
        "deep-two-barriers",
        "two barriers in a row with messages before, between and after, all instances reachable in every way",
        (_relay(lessees=1), _sink(lessees=1, direct=(0,))),
        {"S": script("U", "a |1 b |2 c")},
        split=True,
    ),
    World(
        "deep-mixed-barriers",
        "SYNC_CHANNEL and SYNC_ONE at one actor, with forwarding and direct sending",
        (_sink(lessees=1, direct=(0,)),),
        {"S": script("D", "a #1 b |1 c"), "T": script("D", "|2 x #1")},
    ),
    World(
        "deep-upstream-ends",
        "an upstream ends while another waits for it, with direct sending",
        (_sink(lessees=1, direct=(0,)),),
        {"S": script("D", "a |1 b ."), "T": script("D", "x #1 y")},
    ),
    World(
        "deep-ordered",
        "an ordered function below a parallel one, two upstreams",
        (_relay(lessees=1), _sink(lessees=1, direct=(0,), ordered=True)),
        {"S": script("U", "a b |1 c"), "T": script("D", "x |2 y")},
    ),
    World(
        "deep-two-lessees",
        "two barriers in a row into an actor with two lessees, messages before, between and after",
        (_relay(lessees=1), _sink(lessees=2, forwards=(0,), direct=(1,))),
        {"S": script("U", "a |1 b |2 c")},
        split=True,
    ),
    World(
        "deep-diamond",
        "a diamond with lessees on all corners",
        (Actor("A", ("E",), lessees=1), Actor("B", ("E",), lessees=1), Actor("E", (), lessees=1)),
        {"S": _to_both("A", "B", "a |1 b")},
        split=True,
    ),
    World(
        "deep-all-at-once",
        "two upstreams ask for all lessees in one registration, and use one of them, or both, or none",
        (_sink(lessees=2, forwards=(), direct=(0, 1)),),
        {"S": script("D", "a b |1 c"), "T": script("D", "x |2")},
        at_once=True,
    ),
    World(
        "deep-chain",
        "a chain of three actors, all with lessees that are sent to directly",
        (Actor("A", ("B",), lessees=1), Actor("B", ("C",), lessees=1, direct=(0,)), Actor("C", (), lessees=1, direct=(0,))),
        {"S": script("A", "a |1 b")},
        split=True,
    ),
    World(
        "deep-two-sync-ones",
        "two SYNC_ONEs in flight, with forwarding and direct sending",
        (_sink(lessees=1, direct=(0,)),),
        {"S": script("D", "a #1 b #2"), "T": script("D", "#1 x #2 y")},
    ),
    World(
        "deep-scale-in",
        "scale-in of both actors at any time",
        (_relay(lessees=1), _sink(lessees=1, direct=(0,))),
        {"S": script("U", "a |1 b")},
        scale_ins=("U", "D"),
        split=True,
    ),
)


def world_named(name: str) -> World:
    """One of the worlds; a name that is none gives an error that lists them.

    A name with an @ is one of the many worlds that a world with snapshots consists of; a violation tells it.
    """
    for world in (*WORLDS, *DEEP_WORLDS):
        if world.name == name:
            return world
        if world.snapshots and name.startswith(f"{world.name}@"):
            return variant_named(world, name)
    raise KeyError(f"there is no world {name!r}; there are: {', '.join(world.name for world in WORLDS)}")
