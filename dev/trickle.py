"""Order events at a slow, steady rate, with the present time, until it is stopped.

python trickle.py BOOTSTRAP_SERVERS TOPIC EVENTS_PER_SECOND
"""

import sys
import time
from collections.abc import Iterator

from order_events import order_events, produce


def present_times(per_second: float) -> Iterator[int]:
    """Yield the time in milliseconds, `per_second` times a second: the caller waits for each."""
    while True:
        time.sleep(1 / per_second)
        yield time.time_ns() // 1_000_000


def main() -> None:
    """Produce without end; ends by a signal, or by a DeliveryError where the broker stays away."""
    bootstrap_servers, topic, per_second = sys.argv[1:]
    # The start is the seed, so that the next trickle makes other orders.
    events = order_events(sys.maxsize, seed=int(time.time()), timestamps_ms=present_times(float(per_second)))
    produce(bootstrap_servers, topic, events)


if __name__ == "__main__":
    main()
