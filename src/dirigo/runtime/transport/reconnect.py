"""How a connection is made anew that may be dead without knowing so."""

from __future__ import annotations

from contextlib import suppress

import zmq


def connect_again(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Give up the connection to an endpoint, with all that is in it, and make another one."""
    with suppress(zmq.ZMQError):  # the library may have given it up itself
        socket.disconnect(endpoint)
    socket.connect(endpoint)
