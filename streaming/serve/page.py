"""HTML pages: an overview and one for each group. Clients choose the strings on them, so everything is escaped.

Jinja2 escapes by default here. `<bdi>` keeps right-to-left text from changing what stands around its cell. The
Content-Security-Policy in `app` forbids every script but our own (by its hash) and every foreign resource. A page is
complete without the script, which only keeps it current.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from coordinator_model.wording import seconds
from streaming.serve.api import Api, number
from streaming.serve.coverage import coverage, in_words
from streaming.serve.events import runs
from streaming.serve.lag_view import HEIGHT, lag_view, waited
from streaming.serve.notify.message import group_path, ownership
from streaming.serve.runbooks import RULES, all_rules, runbook
from streaming.serve.timeline import LABEL, WIDTH, heartbeats, timeline, troubled_first, waited_for
from streaming.store import Store
from streaming.store.database import group_key
from streaming.store.pages import Object

_FOLDER: Final = Path(__file__).parent / "templates"
STYLE: Final = (_FOLDER / "style.css").read_text(encoding="utf-8")
SCRIPT: Final = (_FOLDER / "live.js").read_text(encoding="utf-8")
GROUPS_SHOWN: Final = 200
INCIDENTS_SHOWN: Final = 200
DEAD_LETTERS_SHOWN: Final = 10
GENERATIONS_DRAWN: Final = 200
MEMBERS_SHOWN: Final = 100
MOST_PAGES: Final = 1_000_000
CELL_CHARACTERS: Final = 400
MINUTES: Final = 30


def csp_hash(text: str) -> str:
    """Return the hash of an inline style or script for the Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def instant(value_ms: int | None) -> str:
    """Write an instant in UTC."""
    if value_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(value_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    except (OverflowError, ValueError, OSError):
        return f"{value_ms} ms"


def plain(value: object) -> str:
    """Return text for a page: cut, and with what UTF-8 cannot encode replaced.

    It is cut because an id has up to 32 KiB, and a page hundreds of ids. The API has the whole id.
    """
    text = str(value)
    shown = text if len(text) <= CELL_CHARACTERS else f"{text[:CELL_CHARACTERS]}…"
    return shown.encode("utf-8", "replace").decode("utf-8")


def number_of(value: float | None) -> str:
    """Write a number with thousands separators."""
    return "" if value is None else f"{value:,}"


def row_key(*names: object) -> str:
    """Return the key by which a refresh finds a table row again. It is a hash: clients choose ids, also long ones."""
    return hashlib.sha256("\0".join(map(str, names)).encode("utf-8", "replace")).hexdigest()[:16]


def path_to(cluster: str, group: str, key: str | None = None) -> Markup:
    """Return the path of a group's page, neither escaped nor cut; `key`: needed if `group` may not be the exact id."""
    path = group_path(cluster, group) if key in (None, group_key(cluster, group)) else f"/group/{key}"
    return Markup(path)  # noqa: S704 - percent-encoded: nothing in it is special in HTML


_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: "" if value is None else value if isinstance(value, Markup) else plain(value),
)
_TEMPLATES.filters.update(
    instant=instant,
    seconds=seconds,
    waited=waited,
    number=number_of,
    runs=lambda numbers: runs(sorted(numbers)),
    ownership=lambda incident: ownership(incident, instant),
)
_TEMPLATES.globals.update(group_path=path_to, row_key=row_key, style=Markup(STYLE), script=Markup(SCRIPT))  # noqa: S704 - our own files


@dataclass(frozen=True, slots=True)
class Pages:
    """The endpoints for people."""

    store: Store
    api: Api

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/", self.overview),
            Route("/groups/{group:group_id}", self.group),
            Route("/group/{key}", self.group_of_key),
            Route("/rules", self.rules),
            Route("/rules/{rule:path}", self.rule),
        ]

    def overview(self, request: Request) -> Response:
        """Show the open incidents, and the groups with those in trouble first."""
        page = _page(
            "overview.html",
            reason=self._not_current(),
            coverage=in_words(coverage(self.store)),
            incidents=self.store.read.incidents(state="open", by_severity=True, limit=INCIDENTS_SHOWN),
            groups=self.store.read.group_states(GROUPS_SHOWN),
            dead_letters=self.store.outbox.dead_letters(DEAD_LETTERS_SHOWN),
            total=sum(row.groups for row in self.store.read.group_totals()),
        )
        return if_changed(request, page)

    def group(self, request: Request) -> Response:
        """Show one group."""
        found = self.api.detail(request.path_params["group"], request.query_params.get("cluster"))
        return self._group(request, found)

    def group_of_key(self, request: Request) -> Response:
        """Show a group whose id is too long for a link."""
        found = self.store.read.group_of_key(request.path_params["key"])
        if found is None:
            raise HTTPException(404, "no such group")
        return self._group(request, self.api.completed(found))

    def rules(self, request: Request) -> Response:
        """List the rules."""
        return if_changed(request, _page("rule.html", title="Rules", text=all_rules()))

    def rule(self, request: Request) -> Response:
        """Show a rule's runbook."""
        rule = request.path_params["rule"]
        if rule not in RULES:
            raise HTTPException(404, "no such rule")
        return if_changed(request, _page("rule.html", title=rule, text=runbook(rule)))

    def _group(self, request: Request, found: Object) -> Response:
        incidents = self._incidents(found["cluster"], found["group"])
        minutes = number(request, "minutes", MINUTES, 1, 30 * 24 * 60)
        page_number = number(request, "page", 1, 1, MOST_PAGES)
        drawn = self.store.read.generations(found["cluster"], found["group"], GENERATIONS_DRAWN)
        lag = self.store.lags.of_group(found["cluster"], found["group"])
        page = _page(
            "group.html",
            reason=self._not_current(found["cluster"]),
            group=found,
            incidents=incidents,
            members=MembersPage.of(request, found, page_number),
            minutes=minutes,
            timeline=timeline(found, drawn, [*incidents.opened, *incidents.closed], minutes * 60_000),
            heartbeats=heartbeats(found),
            waited_for=waited_for(found["incidents"]),
            lag=None if lag is None else lag_view(lag),
            lag_height=HEIGHT,
            width=WIDTH,
            label=LABEL,
        )
        return if_changed(request, page)

    def _not_current(self, cluster: str | None = None) -> str | None:
        """Return why what is shown of a cluster, or of all, is not current; None: it is."""
        _, readiness = self.api.readiness(cluster)
        return readiness.get("reason")

    def _incidents(self, cluster: str, group: str) -> "GroupIncidents":
        read = self.store.read
        opened = read.incidents(state="open", cluster=cluster, group=group, by_severity=True, limit=INCIDENTS_SHOWN)
        room = max(1, INCIDENTS_SHOWN - len(opened))
        closed = read.incidents(state="closed", cluster=cluster, group=group, limit=room)
        return GroupIncidents(opened.objects, opened.total, closed.objects, closed.total)


class GroupIncidents(NamedTuple):
    """A group's open incidents, the worst first, its newest closed ones, and the total number of each."""

    opened: Sequence[Object]
    opened_total: int
    closed: Sequence[Object]
    closed_total: int


class MembersPage(NamedTuple):
    """One page of a group's members, those in trouble first; `first`: the number of its first member, from 1."""

    first: int
    rows: Sequence[Mapping[str, Any]]
    before: str | None
    """The query string of the page before this one; `after`: of the next one."""
    after: str | None

    @classmethod
    def of(cls, request: Request, group: Object, number: int) -> Self:
        """Return one page of a group's members. A page beyond the last is empty."""
        begin = (number - 1) * MEMBERS_SHOWN
        rows = troubled_first(group)[begin : begin + MEMBERS_SHOWN]

        def link(to: int) -> str:
            return "?" + urlencode(dict(request.query_params) | {"page": str(to)})

        has_more = begin + MEMBERS_SHOWN < len(group["members"])
        return cls(begin + 1, rows, link(number - 1) if number > 1 else None, link(number + 1) if has_more else None)


def if_changed(request: Request, page: Response) -> Response:
    """Answer 304 to a browser that already has this page; the script asks for it every two seconds."""
    page.headers["ETag"] = etag = f'"{hashlib.sha256(bytes(page.body)).hexdigest()[:32]}"'
    return Response(status_code=304, headers={"ETag": etag}) if request.headers.get("If-None-Match") == etag else page


def error_page(status: int, message: str, clusters: list[str], group: str) -> Response:
    """Return a page that says what is wrong, with a choice of clusters if several have the group."""
    return _page("error.html", status, status=status, message=message, clusters=clusters, group=group)


def _page(template: str, status_code: int = 200, **values: object) -> Response:
    return HTMLResponse(_TEMPLATES.get_template(template).render(values), status_code)
