"""A server that gives tokens for client credentials (RFC 6749, section 4.4), over TLS, for tests and trials.

Who asks with a known id and secret gets a signed JWT of an hour; brokers check it by the key in a file (JWKS).
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from joserfc import jwt
from joserfc.jwk import RSAKey

from certificates import Authority
from free_ports import LOOPBACK

LIFETIME_S = 3_600


class TokenServer:
    """Runs in a thread while it is open. `asked` are the ids that asked for a token, in order, let in or not."""

    def __init__(self, directory: Path, authority: Authority, secrets: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        key = RSAKey.generate_key(2048, {"kid": "1", "alg": "RS256", "use": "sig"})
        self.keys = directory / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                login = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
                name, _, secret = (unquote(each) for each in login.partition(":"))
                asked.append(name)
                now = int(time.time())
                claims = {"sub": name, "iat": now, "exp": now + LIFETIME_S, "scope": "kafka"}
                token = jwt.encode({"alg": "RS256", "kid": "1", "typ": "JWT"}, claims, key)
                is_known = bool(secret) and secrets.get(name) == secret
                answer = {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_S, "scope": "kafka"}
                body = json.dumps(answer if is_known else {"error": "invalid_client"}).encode()
                self.send_response(200 if is_known else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.certify("tokens", LOOPBACK, "localhost"))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where tokens are to be had."""
        return f"https://{LOOPBACK}:{self._server.server_address[1]}/token"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
