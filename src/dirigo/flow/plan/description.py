"""What a savepoint says of the flow that it is of, so that a later one can be compared with it without any of its code."""

from __future__ import annotations

import msgspec

from dirigo.flow.operators.source_rows import SourceRows
from dirigo.flow.plan.plan import Plan


class OperatorDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One operator with actors of its own."""

    name: str
    kind: str
    described: str  # for people
    partitions: int
    keys: tuple[str, ...] = ()
    state: str = ""  # see Operator.state_form; empty if it keeps nothing
    can_be_divided: bool = True
    is_source: bool = False

    @property
    def keeps_something(self) -> bool:
        """Whether anything is lost if nobody goes on from what a savepoint has of it."""
        return self.is_source or bool(self.state)


class PlanDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of a flow, each after those that it reads from."""

    operators: tuple[OperatorDescription, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PlanDescription)


def describe(plan: Plan) -> PlanDescription:
    positions = {reader.operator: f"positions of {reader.source.position_form}" for reader in plan.readers}
    return PlanDescription(
        operators=tuple(
            OperatorDescription(
                name=stage.name,
                kind=stage.operator.kind,
                described=stage.operator.describe(),
                partitions=stage.partitions,
                keys=tuple(getattr(stage.operator, "keys", ())),
                state=positions.get(stage.name, stage.operator.state_form),
                can_be_divided=stage.operator.can_be_divided,
                is_source=isinstance(stage.operator, SourceRows),
            )
            for stage in plan.stages
        )
    )


def written(description: PlanDescription) -> bytes:
    return _encoder.encode(description)


def read(content: bytes) -> PlanDescription:
    """Raises ``msgspec.DecodeError`` for anything else."""
    return _decoder.decode(content)
