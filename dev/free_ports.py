"""Ports on the loopback interface on which no process listens."""

import random
import socket

LOOPBACK = "127.0.0.1"

# Below the range from which Linux serves outgoing connections (32768 and up): a port of that range can be taken by any
# client while a killed server restarts, even by a client of that very server, connecting to itself.
_RANDOM_PORTS = range(20_000, 32_000)
_TRIES = 200


class NoFreePortError(RuntimeError):
    """Every port that was tried is in use."""


def is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as probe:
        # As Java's server sockets: connections in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def random_free_ports(count: int) -> list[int]:
    """`count` different free ports. Nothing reserves them: use them soon."""
    tried = random.sample(_RANDOM_PORTS, _TRIES)
    free = [port for port in tried if is_free(port)][:count]
    if len(free) < count:
        raise NoFreePortError(f"expected {count} free ports, found {len(free)} among {_TRIES} of {_RANDOM_PORTS}")
    return free


def free_port_from(first: int) -> int:
    """`first`, or the next free port after it."""
    for port in range(first, first + _TRIES):
        if is_free(port):
            return port
    raise NoFreePortError(f"expected a free port from {first} on, found all of the next {_TRIES} in use")
