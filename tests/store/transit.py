"""A key management service for tests: a real HTTP server that keeps its key to itself, with the two calls of HashiCorp Vault's transit engine."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from store.sealing import Unreadable, new_key, seal, unseal

TOKEN = "a token of the service"


@dataclass
class Service:
    """The service's keys by version, what it was asked, and a status it answers everything with when one is set."""

    url: str = ""
    keys: list[bytes] = field(default_factory=lambda: [new_key()])
    asked: list[str] = field(default_factory=list)
    status: int | None = None
    answer: bytes | None = None

    def rotate(self) -> None:
        """Make a new version of its key; what older ones made is still decrypted."""
        self.keys.append(new_key())

    def do(self, path: str, body: dict[str, str]) -> dict[str, str]:
        bound = base64.b64decode(body["associated_data"]).decode()
        if path.startswith("/v1/transit/encrypt/"):
            sealed = seal(self.keys[-1], base64.b64decode(body["plaintext"]), bound)
            return {"ciphertext": f"vault:v{len(self.keys)}:{base64.b64encode(sealed).decode()}"}
        _, version, sealed = body["ciphertext"].split(":", 2)
        return {"plaintext": base64.b64encode(unseal(self.keys[int(version[1:]) - 1], base64.b64decode(sealed), bound)).decode()}


@contextmanager
def serving() -> Iterator[Service]:
    """Run one until the block ends."""
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.asked.append(self.path)
            status, content = service.status or 200, service.answer
            if self.headers["X-Vault-Token"] != TOKEN:
                status, content = 403, b'{"errors": ["permission denied"]}'
            if status == 200 and content is None:
                try:
                    content = json.dumps({"data": service.do(self.path, body)}).encode()
                except Unreadable:
                    status, content = 400, b'{"errors": ["cipher: message authentication failed"]}'
            content = content or b"{}"
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: what is asked is kept above."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}/v1/transit"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
