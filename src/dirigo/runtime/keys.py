"""The keys of one run of a cluster: every socket is encrypted, and only who has the keys gets in.

There is one pair for whoever accepts connections and one for whoever makes them. Both are made anew for each run, so a
worker of an older run is a stranger. Keys travel only inside pickled tasks and in files that their owner alone may read.
"""

from __future__ import annotations

from typing import Final

import msgspec
import zmq

from dirigo.runtime.pieces import FRAME_BYTES_MOST

HANDSHAKE_S: Final = 10.0  # for a connection to tell who it is


class Keys(msgspec.Struct, frozen=True):
    """Two CURVE key pairs, as printable text."""

    server_public: str
    server_secret: str
    client_public: str
    client_secret: str

    @classmethod
    def new(cls) -> Keys:
        server_public, server_secret = zmq.curve_keypair()
        client_public, client_secret = zmq.curve_keypair()
        return cls(*(key.decode() for key in (server_public, server_secret, client_public, client_secret)))

    def secure_server(self, socket: zmq.Socket[bytes]) -> None:
        """Before ``bind``: accept only those who know the server's key; who they are is checked by the gate.

        Until a connection has told who it is, it takes little memory, and not for long.
        """
        socket.curve_server = True
        socket.curve_secretkey = self.server_secret.encode()
        socket.curve_publickey = self.server_public.encode()
        socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MOST)
        socket.handshake_ivl = int(HANDSHAKE_S * 1000)

    def secure_client(self, socket: zmq.Socket[bytes]) -> None:
        """Before ``connect``."""
        socket.curve_serverkey = self.server_public.encode()
        socket.curve_publickey = self.client_public.encode()
        socket.curve_secretkey = self.client_secret.encode()

    def __repr__(self) -> str:
        return "Keys(...)"
