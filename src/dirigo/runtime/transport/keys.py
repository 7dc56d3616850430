"""The keys of one run of a cluster: every socket is encrypted, and who connects is told by the key of a role.

A role is what its keys allow, and the keys of one are of no use for another. Whoever accepts connections has a pair of its
own, whose secret never leaves its process: the controller one, and every worker process another. All are made anew for each
run, so a worker of an older run is a stranger. Keys travel only inside pickled tasks and in files that their owner alone
may read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import zmq

from dirigo.runtime.transport.fragments import FRAME_BYTES_MOST

WORKER: Final = "worker"  # runs the code of jobs, and reports
CLIENT: Final = "client"  # submits jobs, ends them, and all that others may but a worker
WRITER: Final = "writer"  # brings rows to the sources of jobs
READER: Final = "reader"  # looks at figures and results
ROLES: Final = (WORKER, CLIENT, WRITER, READER)
HANDSHAKE_S: Final = 10.0  # for a connection to tell who it is


class KeyPair(msgspec.Struct, frozen=True):
    """One CURVE key pair, as printable text."""

    public: str
    secret: str

    @classmethod
    def new(cls) -> KeyPair:
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())

    def secure_server(self, socket: zmq.Socket[bytes], door: str = "") -> None:
        """Before ``bind``: accept only those who know the public key; the authenticator checks who they are, by this door.

        Until a connection has told who it is, it takes little memory, and not for long.
        """
        socket.curve_server = True
        socket.curve_secretkey = self.secret.encode()
        socket.curve_publickey = self.public.encode()
        if door:
            socket.zap_domain = door.encode()
        socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MOST)
        socket.handshake_ivl = int(HANDSHAKE_S * 1000)

    def __repr__(self) -> str:
        return "KeyPair(...)"


class Keys(msgspec.Struct, frozen=True):
    """What lets somebody of one role in: the own pair, and the public key of the controller."""

    role: str
    server_public: str
    public: str
    secret: str

    def secure_client(self, socket: zmq.Socket[bytes], server_public: str = "") -> None:
        """Before ``connect`` to the controller, or to whoever has the other public key."""
        socket.curve_serverkey = (server_public or self.server_public).encode()
        socket.curve_publickey = self.public.encode()
        socket.curve_secretkey = self.secret.encode()

    def __repr__(self) -> str:
        return f"Keys({self.role!r}, ...)"


class KeyRing:
    """All keys of a run; it stays with the controller."""

    def __init__(self) -> None:
        self.server = KeyPair.new()
        self._pairs = {role: KeyPair.new() for role in ROLES}

    def keys_of(self, role: str) -> Keys:
        pair = self._pairs[role]
        return Keys(role, self.server.public, pair.public, pair.secret)

    def admitted(self, roles: Iterable[str] = ROLES) -> dict[str, str]:
        """By public key, the role that it stands for: what a authenticator has to know."""
        return {self._pairs[role].public: role for role in roles}
