"""The JSON API: arrays of the contract's objects, with more fields; errors as `{"error": ...}`.

Lists come in pages (`limit`, `offset`) and are sent as they are read. `X-Total-Count` is the number of all elements,
counted up to 100,000; `Link` is the next page. A group id is the rest of the path, so it may contain slashes;
`OfGroup` recognizes the paths below a group. JSON is written in ASCII, because clients can choose strings that UTF-8
cannot encode.
"""

import base64
import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Scope

from streaming.config.settings import Settings
from streaming.serve.coverage import coverage
from streaming.serve.events import TimelineEntry, happened
from streaming.serve.health import Health
from streaming.serve.metrics import exposition
from streaming.serve.notify.base import SEVERITIES
from streaming.serve.openapi import GROUP_ORDERS, INCIDENT_ORDERS, OPENAPI, STATES
from streaming.serve.runbooks import RULES
from streaming.store import Store
from streaming.store.lags import UNKNOWN, partitions_of, topic_lags
from streaming.store.pages import Object, Page
from streaming.store.reader import COUNTED
from streaming.store.store import DAY_MS, wall_ms

DEFAULT_LIMIT = 1_000
MAX_LIMIT = 10_000
MAX_OFFSET = 10_000_000
MAX_DIGITS = 18  # no parameter needs more; Python refuses to parse more than 4,300
MAX_ECHO = 200
ALMOST = 0.8  # how similar two ids have to be, from 0 to 1
PIECE_CHARACTERS = 64 * 1024
GENERATIONS_SHOWN = 20
EVENTS_SHOWN = 20


class AsciiJson(JSONResponse):
    """A JSON response in ASCII, which can carry any string."""

    def render(self, content: Any) -> bytes:
        """Encode with escapes."""
        return json.dumps(content).encode("ascii")


class JsonList(StreamingResponse):
    """A JSON array whose elements are read as they are sent: a long one takes no more memory than a short one."""

    media_type = "application/json"

    def __init__(self, objects: Iterable[Object], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(_written(objects), headers=headers)


def _written(objects: Iterable[Object]) -> Iterator[bytes]:
    """Write an array in pieces of `PIECE_CHARACTERS` or a little more; a worker thread is called once for each."""
    piece, characters, separator = ["["], 1, ""
    for found in objects:
        text = json.dumps(found)
        piece += (separator, text)
        separator, characters = ", ", characters + len(text)
        if characters >= PIECE_CHARACTERS:
            yield "".join(piece).encode("ascii")
            piece, characters = [], 0
    yield "".join((*piece, "]")).encode("ascii")


class Ambiguous(HTTPException):
    """Several clusters have what is asked for."""

    def __init__(self, clusters: list[str], what: str = "this group") -> None:
        super().__init__(400, f"several clusters have {what}; add ?cluster=")
        self.clusters = clusters


class GroupIdConvertor(PathConvertor):
    """The rest of the path, whatever it is: Starlette's own `path` ends at a line break, but an id may contain one."""

    regex = "(?s:.*)"


register_url_convertor("group_id", GroupIdConvertor())


class OfGroup(Route):
    """A route below a group's path. If a group id itself ends like this route, its slash is written as `%2F`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match only if the slash before the last part is not percent-encoded."""
        _, _, last = self.path.rpartition("/")
        as_written = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
        return super().matches(scope) if as_written.endswith(f"/{last}".encode()) else (Match.NONE, {})


@dataclass(frozen=True, slots=True)
class Api:
    """The endpoints for programs. All are synchronous, because they wait for the database."""

    store: Store
    settings: Settings
    health: Health

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/metrics", self.metrics),
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            described("/api/v1/groups", self.groups),
            described("/api/v1/groups/{group:group_id}/partitions", self.partitions, OfGroup),
            described("/api/v1/groups/{group:group_id}", self.group),
            described("/api/v1/incidents", self.incidents),
            described("/api/v1/coverage", self.coverage),
            described("/api/v1/quarantine", self.quarantine),
            described("/api/v1/dead-letters", self.dead_letters),
            described("/api/v1/openapi.json", self.openapi),
        ]

    def metrics(self, _request: Request) -> Response:
        """Return the metrics for a scrape."""
        body = exposition(self.store, self.settings, self.health)
        return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")

    def healthz(self, _request: Request) -> Response:
        """Return 200 if this process and its database answer."""
        self.store.read.runs()
        return AsciiJson({"healthy": True})

    def readyz(self, request: Request) -> Response:
        """Return 200 if what this server shows, of all clusters or of one, is current, else 503."""
        ready, body = self.readiness(request.query_params.get("cluster"))
        return AsciiJson(body, 200 if ready else 503)

    def readiness(self, cluster: str | None = None) -> tuple[bool, Object]:
        """Return the readiness of one cluster, or of all."""
        return self.health.readiness(run for run in self.store.read.runs() if cluster in (None, run.cluster))

    def groups(self, request: Request) -> Response:
        """List groups."""
        limit, offset = bounds(request)
        cluster = request.query_params.get("cluster")
        page = self.store.read.groups(
            cluster=cluster,
            state=one_of(request, "state", STATES),
            by_name=one_of(request, "sort", GROUP_ORDERS) == "name",
            limit=limit,
            offset=offset,
        )
        if not page.total:
            self.check_cluster(cluster)
        return listing(request, page, limit, offset, self.labelled)

    def group(self, request: Request) -> Response:
        """Return one group, its open incidents and its newest generations."""
        return AsciiJson(self.detail(request.path_params["group"], request.query_params.get("cluster")))

    def partitions(self, request: Request) -> Response:
        """Return the lag of a group in each of its partitions."""
        found = self.found(request.path_params["group"], request.query_params.get("cluster"))
        lag = self.store.lags.of_group(found["cluster"], found["group"])
        if lag is None:
            nothing = {"at_ms": None, "lag": None, "status": UNKNOWN, "left_out": 0}
            return AsciiJson({"partitions": [], "complete": False, "topics": [], **nothing})
        partitions = list(partitions_of(lag.columns))
        complete = lag.complete and not lag.left_out
        about = {"at_ms": lag.at_ms, "lag": lag.lag, "status": lag.status, "left_out": lag.left_out}
        topics = [topic._asdict() for topic in topic_lags(lag.columns)]
        return AsciiJson({"partitions": partitions, "complete": complete, "topics": topics, **about})

    def incidents(self, request: Request) -> Response:
        """List incidents."""
        limit, offset = bounds(request)
        state = one_of(request, "state", ("open", "closed", "all")) or "all"
        by_severity = one_of(request, "sort", INCIDENT_ORDERS) == "severity"
        if by_severity and state != "open":
            raise HTTPException(400, "sort=severity is for state=open")
        cluster, group = (request.query_params.get(name) for name in ("cluster", "group"))
        page = self.store.read.incidents(
            state=state,
            cluster=cluster,
            group=group,
            rule=one_of(request, "rule", sorted(RULES)),
            severity=one_of(request, "severity", SEVERITIES),
            told={"true": True, "false": False}.get(one_of(request, "told", ("true", "false")) or ""),
            by_severity=by_severity,
            limit=limit,
            offset=offset,
        )
        if not page.total:
            self.check_cluster(cluster)
            self.check_group(group, cluster)
        return listing(request, page, limit, offset)

    def coverage(self, request: Request) -> Response:
        """Return what is read of each cluster and broker, and when lines of a broker are missing."""
        cluster = request.query_params.get("cluster")
        found = coverage(self.store, cluster)
        if not any(found.values()):
            self.check_cluster(cluster)
        return AsciiJson(found)

    def quarantine(self, request: Request) -> Response:
        """List the newest rejected rows; `head` is base64."""
        limit, offset = bounds(request)
        page = self.store.read.quarantine(limit, offset)
        return listing(request, page, limit, offset, _readable)

    def dead_letters(self, request: Request) -> Response:
        """List the newest messages whose delivery was given up."""
        limit, offset = bounds(request)
        return listing(request, self.store.outbox.dead_letters(limit, offset), limit, offset)

    def openapi(self, _request: Request) -> Response:
        """Describe this API."""
        return AsciiJson(OPENAPI)

    def detail(self, group: str, cluster: str | None) -> Object:
        """Return a group with everything that is stored about it; raise like `found`."""
        return self.completed(self.found(group, cluster))

    def found(self, group: str, cluster: str | None) -> Object:
        """Return a group; answer 404 if it is not there, 400 if several clusters have it and `cluster` is None."""
        given = cluster
        if cluster is None:
            clusters = self.store.read.clusters_of(group)
            if len(clusters) > 1:
                raise Ambiguous(clusters)
            cluster = clusters[0] if clusters else self.settings.cluster
        found = self.store.read.group(cluster, group)
        if found is None:
            self.check_cluster(given)
            raise HTTPException(404, f"no such group{self._meant(group, given)}")
        return found

    def check_cluster(self, cluster: str | None) -> None:
        """Answer 404 if a name was given of which there is no cluster: to a misspelt one nothing would look well."""
        known = [run.cluster for run in self.store.read.runs()]
        if cluster is not None and cluster not in known:
            raise HTTPException(404, f"no such cluster; known: {', '.join(known) or 'none yet'}")

    def check_group(self, group: str | None, cluster: str | None) -> None:
        """Answer 404 if a name was given of which there is neither a group nor an incident, as for a cluster."""
        clusters = self.store.read.clusters_of(group) if group else []
        is_known = bool(clusters) if cluster is None else cluster in clusters
        if group and not is_known and not self.store.read.incidents(cluster=cluster, group=group, limit=1).total:
            raise HTTPException(404, f"no such group{self._meant(group, cluster)}")

    def completed(self, found: Object) -> Object:
        """Return a group's view with its labels, open incidents, generations and events."""
        read, cluster, group = self.store.read, found["cluster"], found["group"]
        return {
            **self.labelled(found),
            "incidents": read.incidents(state="open", cluster=cluster, group=group, by_severity=True).objects,
            "generations": read.generations(cluster, group, GENERATIONS_SHOWN),
            "events": [event._asdict() for event in self._events(cluster, group)],
        }

    def _meant(self, group: str, cluster: str | None) -> str:
        """Return a hint if a known group has almost the same id, else why the group may not be known yet."""
        is_ready, told = self.readiness(cluster)
        stale = "" if is_ready else f"; not current: {told['reason']}"
        if len(group) > MAX_ECHO:
            return stale
        known = [name for name in self.store.read.groups_like(group) if len(name) <= MAX_ECHO]
        near = difflib.get_close_matches(group, known, n=1, cutoff=ALMOST)
        return f"; did you mean {near[0]}?" if near else stale

    def _events(self, cluster: str, group: str) -> list[TimelineEntry]:
        history = self.store.read.history(cluster, group, wall_ms() + DAY_MS, EVENTS_SHOWN)
        return happened(*history, EVENTS_SHOWN)

    def labelled(self, group: Object) -> Object:
        """Return a group with what the configuration says about it."""
        policy = self.settings.policy_for(group["group"])
        return {**group, "labels": dict(policy.labels), "runbook_url": policy.runbook_url, "mode": policy.mode}


def described(path: str, endpoint: Callable[[Request], Response], route: type[Route] = Route) -> Route:
    """Return a route that refuses parameters `openapi` does not describe: a misspelt filter would filter nothing."""
    about = OPENAPI["paths"][path.replace(":group_id", "")]["get"]
    known = [parameter["name"] for parameter in about["parameters"] if parameter["in"] == "query"]

    def answer(request: Request) -> Response:
        if unknown := sorted(request.query_params.keys() - known):
            allowed = ", ".join(known) or "none"
            raise HTTPException(400, f"unknown parameter: {', '.join(unknown)[:MAX_ECHO]}; known here: {allowed}")
        return endpoint(request)

    return route(path, answer)


def bounds(request: Request) -> tuple[int, int]:
    """Return `limit` and `offset`; answer 400 if one is not a number in range."""
    return number(request, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT), number(request, "offset", 0, 0, MAX_OFFSET)


def one_of(request: Request, name: str, choices: Sequence[str]) -> str | None:
    """Return a parameter that has to be one of `choices`; answer 400 if it is not."""
    value = request.query_params.get(name)
    if value is not None and value not in choices:
        raise HTTPException(400, f"{name} is {', '.join(choices[:-1])} or {choices[-1]}")
    return value


def number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """Return a parameter that has to be a number within bounds; answer 400 if it is not."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and least <= int(text) <= most):
        raise HTTPException(400, f"{name} is a number from {least} to {most}")
    return int(text)


def _readable(rejected: Object) -> Object:
    """Return a rejected row with its head as base64."""
    return {**rejected, "head": base64.b64encode(rejected["head"]).decode()}


def listing(
    request: Request,
    page: Page[str] | Page[int],
    limit: int,
    offset: int,
    completed: Callable[[Object], Object] = lambda found: found,
) -> Response:
    """Return a page as an array, with a link to the next page."""
    headers = {"X-Total-Count": str(page.total)}
    uncounted = page.total == COUNTED and len(page) == limit and offset + limit <= MAX_OFFSET
    if offset + len(page) < page.total or uncounted:
        query = dict(request.query_params) | {"limit": str(limit), "offset": str(offset + limit)}
        headers["Link"] = f'<{request.url.path}?{urlencode(query)}>; rel="next"'
    return JsonList(map(completed, page), headers=headers)
