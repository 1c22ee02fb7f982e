"""Pages for people: an overview and one a group. Everything shown is a stranger's string, so everything is escaped.

Jinja2 escapes by default here, `<bdi>` keeps right-to-left tricks inside their cell, and the policy in `app` forbids
every script but our own (by its hash) and every foreign resource. A page is complete without it; it keeps it current.
"""

import base64
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from streaming.serve.api import Api, number
from streaming.serve.events import seconds
from streaming.serve.health import Health
from streaming.serve.notify.message import group_path
from streaming.serve.timeline import LABEL, WIDTH, heartbeats, timeline, waited_for
from streaming.store import Store
from streaming.store.store import wall_ms

_FOLDER: Final = Path(__file__).parent / "templates"
STYLE: Final = (_FOLDER / "style.css").read_text(encoding="utf-8")
SCRIPT: Final = (_FOLDER / "live.js").read_text(encoding="utf-8")
GROUPS_SHOWN: Final = 200
INCIDENTS_SHOWN: Final = 200
DEAD_LETTERS_SHOWN: Final = 10
GENERATIONS_DRAWN: Final = 200
MINUTES: Final = 30


def csp_hash(text: str) -> str:
    """Name an inline style or script for the Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def instant(value_ms: int | None) -> str:
    """Show an instant in UTC."""
    if value_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(value_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    except (OverflowError, ValueError, OSError):
        return f"{value_ms} ms"


def plain(value: object) -> str:
    """Show text, with what UTF-8 cannot hold replaced."""
    return str(value).encode("utf-8", "replace").decode("utf-8")


_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: "" if value is None else value if isinstance(value, Markup) else plain(value),
)
_TEMPLATES.filters.update(instant=instant, seconds=seconds)
_TEMPLATES.globals.update(group_path=group_path, style=Markup(STYLE), script=Markup(SCRIPT))  # noqa: S704 - our own files


@dataclass(frozen=True, slots=True)
class Pages:
    """The endpoints for people."""

    store: Store
    api: Api
    health: Health

    def routes(self) -> list[Route]:
        """List the routes."""
        return [Route("/", self.overview), Route("/groups/{group:group_id}", self.group)]

    def overview(self, _request: Request) -> Response:
        """Show what is open, and the groups in trouble first."""
        ready, readiness = self.health.readiness(self.store.read.runs(), wall_ms())
        return _page(
            "overview.html",
            ready=ready,
            clusters=readiness["clusters"],
            incidents=self.store.read.incidents(state="open", limit=INCIDENTS_SHOWN),
            groups=self.store.read.group_states(GROUPS_SHOWN),
            dead_letters=self.store.outbox.dead_letters(DEAD_LETTERS_SHOWN),
            total=sum(row.groups for row in self.store.read.group_totals()),
        )

    def group(self, request: Request) -> Response:
        """Show one group."""
        found = self.api.detail(request.path_params["group"], request.query_params.get("cluster"))
        recent = self.store.read.incidents(cluster=found["cluster"], group=found["group"], limit=INCIDENTS_SHOWN)
        minutes = number(request, "minutes", MINUTES, 1, 30 * 24 * 60)
        drawn = self.store.read.generations(found["cluster"], found["group"], GENERATIONS_DRAWN)
        return _page(
            "group.html",
            group=found,
            incidents=recent,
            minutes=minutes,
            timeline=timeline(found, drawn, recent.objects, minutes * 60_000),
            heartbeats=heartbeats(found),
            waited_for=waited_for(found["incidents"]),
            width=WIDTH,
            label=LABEL,
        )


def error_page(status: int, message: str, clusters: list[str], group: str) -> Response:
    """Show what is wrong; with the choice of clusters where several have the group."""
    return _page("error.html", status, status=status, message=message, clusters=clusters, group=group)


def _page(template: str, status_code: int = 200, **values: object) -> Response:
    return HTMLResponse(_TEMPLATES.get_template(template).render(values), status_code)
