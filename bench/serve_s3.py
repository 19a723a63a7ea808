"""moto's S3 server on a port of its own, which is printed, until this process is ended: ``python serve_s3.py``."""

import logging
import time

from moto.server import ThreadedMotoServer

from free_ports import LOOPBACK

A_DAY_S = 86_400


def main() -> None:
    """Serve."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=LOOPBACK, port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    while True:
        time.sleep(A_DAY_S)


if __name__ == "__main__":
    main()
