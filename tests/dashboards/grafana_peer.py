"""A Grafana that speaks the part of the HTTP API we use: answers as its own documentation and source show them.

It stores folders, dashboards (with versions, as 412 needs them) and annotations; `answers` makes the next request to a
path end with a status and body instead.
"""

import base64
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "glsa_rosebud"
PASSWORD = "hunter2"
SOURCES = [
    {"id": 1, "uid": "loki", "name": "Loki", "type": "loki", "isDefault": True},
    {"id": 2, "uid": "p-old", "name": "Old", "type": "prometheus", "isDefault": False},
    {"id": 3, "uid": "p-main", "name": "Main", "type": "prometheus", "isDefault": False},
]


@dataclass
class Grafana:
    """What it holds, and what it was asked."""

    version: str = "12.1.1"
    prefix: str = ""
    url: str = ""
    folders: dict[str, str] = field(default_factory=dict)
    dashboards: dict[str, dict[str, Any]] = field(default_factory=dict)
    folder_of: dict[str, str] = field(default_factory=dict)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        """Dispatch a request whose credentials are right."""
        if method != "GET":
            self.writes.append(f"{method} {path}")
        match path.split("/")[1:]:
            case ["health"]:
                return 200, {"commit": "abc", "database": "ok", "version": self.version}
            case ["datasources"]:
                return 200, SOURCES
            case ["folders"] if method == "GET":
                return 200, [{"id": 7, "uid": uid, "title": title} for uid, title in self.folders.items()]
            case ["folders"]:
                self.folders[body["uid"]] = body["title"]
                return 200, {"id": 7, "uid": body["uid"], "title": body["title"]}
            case ["dashboards", "uid", uid]:
                if uid not in self.dashboards:
                    return 404, {"message": "Dashboard not found"}
                return 200, {"dashboard": self.dashboards[uid], "meta": {"folderUid": self.folder_of[uid]}}
            case ["dashboards", "db"]:
                return self._save(body)
            case ["annotations", *rest]:
                return self._annotate(method, rest, query, body)
        return 404, _not_found()

    def _save(self, body: dict[str, Any]) -> tuple[int, Any]:
        model = body["dashboard"]
        stored = self.dashboards.get(model["uid"])
        if stored and stored["version"] != model["version"] and not body["overwrite"]:
            words = "The dashboard has been changed by someone else"
            return 412, {"status": "version-mismatch", "message": words}
        # A newer Grafana migrates, and adds what it has defaults for.
        saved = {**model, "id": len(self.dashboards) + 1, "version": model["version"] + 1, "schemaVersion": 42}
        saved["panels"] = [{**panel, "pluginVersion": self.version} for panel in model["panels"]]
        self.dashboards[model["uid"]] = saved
        self.folder_of[model["uid"]] = body["folderUid"]
        return 200, {"status": "success", "uid": model["uid"], "version": saved["version"]}

    def _annotate(self, method: str, rest: list[str], query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if method == "GET":
            wanted, start, end = set(query["tags"]), int(query["from"][0]), int(query["to"][0])
            return 200, [
                mark for mark in self.annotations if wanted <= set(mark["tags"]) and start <= mark["time"] <= end
            ]
        if method == "POST":
            mark = {**body, "id": len(self.annotations), "timeEnd": body["timeEnd"] or body["time"]}
            self.annotations.append(mark)
            return 200, {"id": mark["id"], "message": "Annotation added"}
        self.annotations[int(rest[0])].update({name: value for name, value in body.items() if value is not None})
        return 200, {"message": "Annotation patched"}


def _not_found() -> dict[str, str]:
    return {"message": "Not found"}


@contextmanager
def grafana(certificate: Path | None = None, **settings: Any) -> Iterator[Grafana]:
    """Run one on a free port, with https where it is given a PEM file of key and certificate."""
    peer = Grafana(**settings)
    basic = "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"null")
            parts = urlsplit(self.path)
            path = parts.path.removeprefix(f"{peer.prefix}/api")
            if path in peer.answers:
                status, answer = peer.answers.pop(path)
            elif self.headers["Authorization"] not in (f"Bearer {TOKEN}", basic):
                status, answer = 401, {"message": "Invalid API key", "messageId": "api-key.invalid"}
            elif path == parts.path:
                status, answer = 200, "<html>Welcome</html>"  # whatever else lives on that host
            else:
                status, answer = peer.answer(self.command, path, parse_qs(parts.query), body)
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.handle_any()

        def do_POST(self) -> None:
            self.handle_any()

        def do_PATCH(self) -> None:
            self.handle_any()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    peer.url = f"{scheme}://127.0.0.1:{server.server_port}{peer.prefix}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield peer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
