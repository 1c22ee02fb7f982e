"""The demo's own webhook, to which `serve` delivers the alerts."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class WebhookReceiver:
    """A context manager that accepts POSTs on a free port and keeps them in order, each with `delivered_ms`."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """The address to configure."""
        return f"http://127.0.0.1:{self._server.server_port}/alerts"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="webhook", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        alerts = self.alerts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                alerts.append({**json.loads(body), "delivered_ms": time.time_ns() // 1_000_000})
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 # the base class' name
                """Say nothing: the demo shows the alerts itself."""

        return Handler
