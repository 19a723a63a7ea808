"""A UDP socket on the loopback interface that StatsD's lines are sent to."""

import socket
from types import TracebackType
from typing import Self


class StatsdServer:
    """Takes what is sent to it, and answers nothing, as StatsD does."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0)

    @property
    def settings(self) -> dict[str, str]:
        """Airflow's settings by which it sends its metrics here, in the form of environment variables."""
        of_metrics = {
            "STATSD_ON": "True",
            "STATSD_HOST": "127.0.0.1",
            "STATSD_PORT": str(self._socket.getsockname()[1]),
        }
        return {f"AIRFLOW__METRICS__{name}": value for name, value in of_metrics.items()}

    def received(self) -> list[str]:
        """What has arrived since the last call: on the loopback interface a datagram is there once it is sent."""
        found: list[str] = []
        while True:
            try:
                found += self._socket.recv(65_535).decode().splitlines()
            except BlockingIOError:
                return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
