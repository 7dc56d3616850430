"""Owns how named values become bytes and come back exactly; must not know declarations or transports.

The bytes are a msgpack map from state name to value.  A value made only of scalars (a scalar, a list of scalars, a
dict from scalars to scalars) is written as plain msgpack, which returns it with exactly its types.  Everything else
(tuples, sets, nested containers, arrays, user classes, integers beyond 64 bits) would come back changed, and is
pickled into a msgpack extension instead.  The choice looks at the value, because a declared type binds nobody.

The bytes are trusted: decoding runs pickle, so they must come from a worker of the same service over an
authenticated transport.  User classes in them must be importable under the same name at the receiver.
"""

import pickle
from collections.abc import Mapping
from typing import Any

import msgspec

from dirigo.state.errors import StateError
from dirigo.state.values.scalars import SCALAR_TYPES, all_scalars

PICKLE_EXTENSION = 1


def encode_values(values: Mapping[str, Any]) -> bytes:
    """The bytes of named values."""
    return _encoder.encode({name: _encode_value(value) for name, value in values.items()})


def decode_values(data: bytes) -> dict[str, Any]:
    """The named values in `data`, equal to and of the same types as those encoded."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise StateError(f"These bytes do not hold encoded states ({error}); pass what encode() returned.") from error


def _encode_value(value: Any) -> msgspec.Raw:
    if is_plain(value):
        try:
            return msgspec.Raw(_encoder.encode(value))
        except (OverflowError, UnicodeEncodeError):
            pass  # an integer beyond 64 bits or a text with lone surrogates: msgpack has no form for them
    return msgspec.Raw(_encoder.encode(msgspec.msgpack.Ext(PICKLE_EXTENSION, pickle.dumps(value, protocol=5))))


def is_plain(value: Any) -> bool:
    """Whether a value is a scalar, or a flat list or map of them."""
    kind = type(value)
    if kind is list:
        return all_scalars(value)
    if kind is dict:
        return all_scalars(value.keys()) and all_scalars(value.values())
    return kind in SCALAR_TYPES


def _decode_extension(code: int, data: memoryview) -> Any:
    if code != PICKLE_EXTENSION:
        raise StateError(f"These bytes hold an unknown extension {code}; run the same version on all workers.")
    return pickle.loads(data)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, Any], ext_hook=_decode_extension)
