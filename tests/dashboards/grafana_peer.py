"""A Grafana that speaks the part of the HTTP API we use, answer by answer as Grafana's source has it.

None could be run here, and so none be recorded. In the repository grafana/grafana (each read at the stored commit):

- `GET /health`: pkg/api/http_server.go, apiHealthHandler: before any authentication; no version where it is hidden.
- 401: pkg/services/authn/clients/api_key.go, errAPIKeyInvalid; pkg/services/accesscontrol/middleware.go, unauthorized.
- 403: middleware.go, deny. An Editor gets it for a dashboard or folder that does *not exist*: the scope cannot be
  resolved (also in 13: grafana/terraform-provider-grafana, issue 2837). An Admin gets pkg/api/dashboard.go's 404.
- Data sources: pkg/api/datasources.go, GetDataSources, sorted by name.
- Folders: pkg/api/folder.go, GetFolders (the outermost only, without `parentUid`), GetFolderByUID, CreateFolder; 404
  and 409 of pkg/api/apierrors/folder.go.
- Dashboards: pkg/api/dashboard.go, GetDashboard and postDashboard; the errors of pkg/services/dashboards/errors.go (10
  and 11 had `name-exists`, too), as pkg/api/apierrors/dashboard.go writes them: with `status` where the error has one.
- Annotations: pkg/api/annotations.go; pkg/services/annotations/annotationsimpl/xorm_store.go (time range, tags,
  limits); pkg/services/tag/model.go (a tag is cut at its second colon), pkg/services/sqlstore/migrations/tag_mig.go
  (100 characters: PostgreSQL and MySQL refuse more).

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
    {"id": 3, "uid": "p-main", "name": "Main", "type": "prometheus", "isDefault": False},
    {"id": 2, "uid": "p-old", "name": "Old", "type": "prometheus", "isDefault": False},
]
INVALID_KEY = {"message": "Invalid API key", "messageId": "api-key.invalid", "statusCode": 401, "traceID": ""}
CHANGED = {"status": "version-mismatch", "message": "The dashboard has been changed by someone else"}
TAGS_TOO_LONG = {
    "message": "Tags length exceeds the maximum allowed.",
    "messageId": "annotations.tag-limit-exceeded",
    "statusCode": 400,
    "traceID": "",
}
TAG_CHARACTERS = 100
TAGS_LENGTH = 500  # [annotations] tags_length, unless set


@dataclass
class Grafana:
    """What it holds, and what it was asked."""

    version: str = "12.1.1"
    prefix: str = ""
    url: str = ""
    admin: bool = False  # else an Editor who may also list data sources
    folders: dict[str, str] = field(default_factory=dict)
    nested: dict[str, str] = field(default_factory=dict)
    dashboards: dict[str, dict[str, Any]] = field(default_factory=dict)
    provisioned: bool = False
    folder_of: dict[str, str] = field(default_factory=dict)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        """Dispatch a request whose credentials are right."""
        if method != "GET":
            self.writes.append(f"{method} {path}")
        match path.split("/")[1:]:
            case ["datasources"]:
                return 200, [{**source, "orgId": 1, "access": "proxy", "readOnly": False} for source in SOURCES]
            case ["folders", *uid]:
                return self._folder(method, uid, body)
            case ["dashboards", "uid", uid]:
                if uid not in self.dashboards:
                    return self._absent("dashboards:read", {"message": "Dashboard not found"})
                meta = {"folderUid": self.folder_of[uid], "version": self.dashboards[uid]["version"], "type": "db"}
                return 200, {"dashboard": self.dashboards[uid], "meta": meta}
            case ["dashboards", "db"]:
                return self._save(body)
            case ["api", "v1", "incidents"]:  # of a monitor, not of Grafana
                return 200, self.incidents
            case ["annotations", *rest]:
                return self._annotate(method, rest, query, body)
        return 404, {"message": "Not found"}

    def health(self) -> tuple[int, Any]:
        """Answer to anybody."""
        shown = {"version": self.version, "commit": "abc"} if self.version else {}
        return 200, {"database": "ok", **shown}

    def _absent(self, permission: str, body: dict[str, str]) -> tuple[int, Any]:
        if self.admin:
            return 404, body
        words = f"You'll need additional permissions to perform this action. Permissions needed: {permission}"
        return 403, {"title": "Access denied", "message": words, "accessErrorId": "ACE0123456789"}

    def _folder(self, method: str, uid: list[str], body: Any) -> tuple[int, Any]:
        everywhere = {**self.folders, **self.nested}
        if uid:
            if uid[0] not in everywhere:
                return self._absent("folders:read", {"status": "not-found", "message": "folder not found"})
            return 200, {"id": 7, "uid": uid[0], "title": everywhere[uid[0]], "version": 1}
        if method == "GET":
            return 200, [{"id": 7, "uid": uid, "title": title} for uid, title in self.folders.items()]
        if body["uid"] in everywhere:
            return 409, {"message": "a folder/dashboard with the same uid already exists"}
        self.folders[body["uid"]] = body["title"]
        return 200, {"id": 7, "uid": body["uid"], "title": body["title"], "version": 1}

    def _save(self, body: dict[str, Any]) -> tuple[int, Any]:
        model = body["dashboard"]
        stored = self.dashboards.get(model["uid"])
        if self.provisioned:
            return 400, {"message": "Cannot save provisioned dashboard"}
        if stored and stored["version"] != model["version"] and not body["overwrite"]:
            return 412, CHANGED
        # A newer Grafana migrates, and adds what it has defaults for.
        version = stored["version"] + 1 if stored else 1
        saved = {**model, "id": len(self.dashboards) + 1, "version": version, "schemaVersion": 42}
        saved["panels"] = [{**panel, "pluginVersion": self.version} for panel in model["panels"]]
        self.dashboards[model["uid"]] = saved
        self.folder_of[model["uid"]] = body["folderUid"]
        told = {"status": "success", "uid": model["uid"], "id": saved["id"], "version": version}
        return 200, {**told, "slug": "", "url": f"/d/{model['uid']}/", "folderUid": body["folderUid"]}

    def _annotate(self, method: str, rest: list[str], query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if method == "GET":
            start, end, limit = (int(query[name][0]) for name in ("from", "to", "limit"))
            in_time = [mark for mark in self.annotations if mark["time"] <= end and mark["timeEnd"] >= start]
            found = [mark for mark in in_time if all(_has(mark, tag) for tag in _parsed(query["tags"]))]
            return 200, sorted(found, key=lambda mark: -mark["timeEnd"])[:limit]
        tags = _parsed(body["tags"])
        if len(json.dumps(tags, separators=(",", ":"))) > TAGS_LENGTH:
            return 400, TAGS_TOO_LONG
        if any(len(part) > TAG_CHARACTERS for tag in tags for part in tag.split(":")):
            return 500, {"message": "Failed to save annotation"}
        if method == "POST":
            mark = {**body, "tags": tags, "id": len(self.annotations) + 1, "timeEnd": body["timeEnd"] or body["time"]}
            self.annotations.append(mark)
            return 200, {"message": "Annotation added", "id": mark["id"]}
        changes = {name: value for name, value in body.items() if value is not None}
        self.annotations[int(rest[0]) - 1].update(changes | {"tags": tags})
        return 200, {"message": "Annotation patched"}


def _parsed(tags: list[str]) -> list[str]:
    pairs = [[part.strip(" ") for part in tag.split(":")[:2]] for tag in tags]
    return list(dict.fromkeys(":".join(part for part in pair if part) for pair in pairs if pair[0]))


def _has(mark: dict[str, Any], tag: str) -> bool:
    return any(one == tag or (":" not in tag and one.startswith(f"{tag}:")) for one in mark["tags"])


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
            elif path == parts.path:
                status, answer = 200, "<html>Welcome</html>"  # whatever else lives on that host
            elif path == "/health":
                status, answer = peer.health()
            elif self.headers["Authorization"] not in (f"Bearer {TOKEN}", basic):
                status, answer = 401, INVALID_KEY
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
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield peer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
