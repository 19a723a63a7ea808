"""What a server of jobs takes from its clients, which are :data:`tests.kept_spark.SUBMIT`."""

import json
import socket
import sys
from collections.abc import Iterator


def clients_of(place: str) -> Iterator[socket.socket]:
    """Yield each client of a socket, and close it then; tells by ``ready`` in the standard output that it listens."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            client, _ = server.accept()
            with client:
                yield client


def job_of(client: socket.socket) -> tuple[list[str], dict[str, str], list[int]]:
    """Return a client's arguments, its environment, and its standard output and error."""
    _, outputs, _, _ = socket.recv_fds(client, 1, 2)
    arguments, environment = json.loads(client.makefile().read())
    return arguments, environment, outputs
