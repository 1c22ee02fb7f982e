"""Publishes dashboards and incidents to a running Grafana, 10 to 13. The only module that imports `grafana_api`.

It is idempotent: what is already there is left alone. Grafana adds keys of its own to what it stores, so a dashboard
counts as changed only if one of *our* keys differs. A write contains the version it was compared with. If somebody has
saved the dashboard in between, Grafana answers 412, and their change is not overwritten.
"""

import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import requests
from grafana_api.grafana_api import GrafanaException
from grafana_api.grafana_face import GrafanaFace

from dashboards.files import FOLDER, TAG
from dashboards.unreachable import reason
from streaming.commands.remote import TOKEN_VARIABLE, http_parts
from streaming.config.text import mask_url

OLDEST_MAJOR: Final = 10
TIMEOUT_S: Final = 30.0
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
INCIDENTS: Final = 1_000
ANNOTATIONS_ASKED: Final = 10 * INCIDENTS
YEAR_2100_MS: Final = 4_102_444_800_000
TAG_CHARACTERS: Final = 100
WORDS_SHOWN: Final = 200
CREATED, UPDATED, UNCHANGED = "created", "updated", "unchanged"

_OF_AN_INCIDENT: Final = frozenset({"incident_id", "cluster", "group", "rule", "summary"})
_MEANINGS: Final[Mapping[int, str]] = {
    401: "it refuses the token, or user and password",
    403: "the account may not do this: it needs the role Editor, and to list data sources datasources:read (Admin)",
    404: "there is no such thing there; is the URL the one of Grafana itself?",
    412: "somebody has changed it meanwhile, or another one has its title: look, and run again",
}


class PublishError(Exception):
    """Grafana refuses or cannot be reached; the message is one line, without secrets."""


class AddressError(PublishError):
    """The address cannot be used."""


class Change(NamedTuple):
    """What happens, or would happen, to one object in Grafana, and what differs."""

    what: str
    action: str
    differences: tuple[str, ...] = ()


class Login(NamedTuple):
    """A token, or user and password."""

    token: str | None = None
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        """Return a text without secrets."""
        return f"Login({'token' if self.token else self.user})"


def connect(url: str, login: Login, *, ca_file: str | None = None, plain_http: bool = False) -> GrafanaFace:
    """Connect to a Grafana and check its version; raise `PublishError`.

    Plain http is allowed only on loopback, unless `plain_http` is set.
    """
    parts = http_parts(url)
    if parts is None or not parts.hostname:
        raise AddressError("the URL has to be https://host[:port][/path], without user and password in it")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK and not plain_http:
        raise AddressError("plain http would show the credentials to the network: use https, or --plain-http")
    path = parts.path.strip("/")
    auth = login.token or (login.user or "", login.password or "")
    grafana = GrafanaFace(
        auth=auth,
        host=parts.netloc,
        protocol=parts.scheme,
        url_path_prefix=f"{path}/" if path else "",
        verify=ca_file or True,
        timeout=TIMEOUT_S,
    )
    with _explained(f"asking {parts.scheme}://{parts.netloc} for its version"):
        version = str(grafana.api.GET("/health").get("version", ""))
    major = re.match(r"\d+", version)
    if major and int(major[0]) < OLDEST_MAJOR:
        raise PublishError(f"this is Grafana {version[:20]}; the dashboards are for {OLDEST_MAJOR} and newer")
    return grafana


def publish(
    grafana: GrafanaFace,
    boards: Mapping[str, Mapping[str, Any]],
    *,
    folder: str = FOLDER,
    datasource: str | None = None,
    dry_run: bool = False,
) -> Iterator[Change]:
    """Put dashboards (uid -> model) into a folder. They use the data source `datasource`, or Grafana's default one."""
    source = _datasource(grafana, datasource)
    folder_uid, change = _folder(grafana, folder, dry_run=dry_run)
    yield change
    for uid, model in boards.items():
        yield _dashboard(grafana, uid, _with_datasource(model, source), folder_uid, dry_run=dry_run)


def publish_incidents(
    grafana: GrafanaFace, incidents: Iterable[Mapping[str, Any]], *, dry_run: bool = False
) -> Iterator[Change]:
    """Write incidents (the contract's objects with `opened_ms`, `closed_ms`) as annotations, tagged with their ids."""
    listed = sorted(incidents, key=lambda incident: int(incident["opened_ms"]))
    if not listed:
        return
    with _explained("reading annotations"):
        known = grafana.annotations.get_annotation(
            time_from=listed[0]["opened_ms"] - 1, tags=[TAG], limit=ANNOTATIONS_ASKED, time_to=YEAR_2100_MS
        )
    there = {tag: mark for mark in known for tag in mark.get("tags", ()) if tag.startswith("incident:")}
    for incident in listed:
        yield _annotation(grafana, incident, there.get(f"incident:{incident['incident_id']}"), dry_run=dry_run)


def incidents_of(monitor: str, token: str | None) -> list[dict[str, Any]]:
    """Ask `serve` for its newest incidents, open and closed."""
    address, asked = mask_url(monitor), f"{monitor.rstrip('/')}/api/v1/incidents"
    headers = {"Authorization": f"Bearer {token}".encode()} if token else {}
    try:
        answer = requests.get(asked, params={"limit": INCIDENTS}, headers=headers, timeout=TIMEOUT_S)
        answer.raise_for_status()
        incidents = answer.json()
    except RecursionError:
        incidents = None
    except requests.RequestException as error:
        refused = error.response is not None and error.response.status_code == 401
        why = f"{reason(error)}{f'; set {TOKEN_VARIABLE}' if refused else ''}"
        raise PublishError(f"the monitor at {address} does not give its incidents: {why}") from None
    if not (isinstance(incidents, list) and all(map(_is_incident, incidents))):
        raise PublishError(f"the answer from {address} is not a monitor's")
    return incidents


def _is_incident(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("opened_ms"), int) and value.keys() >= _OF_AN_INCIDENT


def differences(ours: Any, theirs: Any, place: str = "") -> Iterator[str]:
    """Yield the differences of our keys; keys that only `theirs` has are Grafana's own."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key, value in ours.items():
            yield from differences(value, theirs.get(key), f"{place}.{key}" if place else str(key))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{place}[{index}]")
    elif ours != theirs:
        yield f"{place}: {_short(theirs)} -> {_short(ours)}"


def _datasource(grafana: GrafanaFace, name: str | None) -> Mapping[str, Any]:
    with _explained("listing data sources"):
        sources: Sequence[Mapping[str, Any]] = grafana.datasource.list_datasources()
        prometheus = [source for source in sources if source["type"] == "prometheus" and name in (None, source["name"])]
    if not prometheus:
        raise PublishError(f"Grafana has no Prometheus data source{f' called {name}' if name is not None else ''}")
    return max(prometheus, key=lambda source: bool(source.get("isDefault")))


def _with_datasource(model: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {"selected": True, "text": source["name"], "value": source["uid"]}
    variables = [
        {**variable, "current": chosen} if variable["name"] == "datasource" else variable
        for variable in model["templating"]["list"]
    ]
    return {**model, "templating": {**model["templating"], "list": variables}}


def _folder(grafana: GrafanaFace, title: str, *, dry_run: bool) -> tuple[str, Change]:
    """Find or create a folder. Look for its title first: if people created it, Grafana chose its uid.

    Then look for our uid, because people may have renamed it.
    """
    what = f"folder {title}"
    uid = TAG if title == FOLDER else f"{TAG}-{hashlib.sha256(title.encode('utf-8', 'replace')).hexdigest()[:16]}"
    with _explained(what):
        known = {folder["title"]: str(folder["uid"]) for folder in grafana.folder.get_all_folders()}  # the outermost
        if title in known or _or_none(grafana.folder.get_folder, uid):
            return known.get(title, uid), Change(what, UNCHANGED)
        if not dry_run:
            grafana.folder.create_folder(title, uid)
    return uid, Change(what, CREATED)


def _dashboard(grafana: GrafanaFace, uid: str, model: dict[str, Any], folder_uid: str, *, dry_run: bool) -> Change:
    what = f"dashboard {model['title']}"
    with _explained(what):
        found = _or_none(grafana.dashboard.get_dashboard, uid)
        stored = found["dashboard"] if found else {}
        # A newer Grafana migrates the model when it stores it, so a different schema version does not count.
        wanted = {key: value for key, value in model.items() if key != "schemaVersion"}
        changed = tuple(differences(wanted, stored)) if found else ()
        if found and found["meta"].get("folderUid", folder_uid) != folder_uid:
            changed += (f"folder: {_short(found['meta']['folderUid'])} -> {_short(folder_uid)}",)
        if found and not changed:
            return Change(what, UNCHANGED)
        if not dry_run:
            body = {**model, "id": stored.get("id"), "version": stored.get("version", 0)}
            grafana.dashboard.update_dashboard(
                {"dashboard": body, "folderUid": folder_uid, "overwrite": False, "message": "group-monitor"}
            )
    return Change(what, UPDATED if found else CREATED, changed)


def _annotation(
    grafana: GrafanaFace, incident: Mapping[str, Any], known: Mapping[str, Any] | None, *, dry_run: bool
) -> Change:
    what = f"incident {incident['incident_id']}"
    closed_ms = incident.get("closed_ms")
    tags = [TAG, *(_tag(name, incident[name]) for name in ("cluster", "group", "rule"))]
    mark = {
        "time_from": incident["opened_ms"],
        "time_to": closed_ms,
        "tags": [*tags, f"incident:{incident['incident_id']}"],
        "text": html.escape(
            str(incident["summary"])
        ),  # clients choose parts of this string, and Grafana shows it as HTML
    }
    with _explained(what):
        if known is None:
            if not dry_run:
                grafana.annotations.add_annotation(**mark)
            return Change(what, CREATED)
        if closed_ms is None or known.get("timeEnd") == closed_ms:
            return Change(what, UNCHANGED)
        if not dry_run:
            grafana.annotations.partial_update_annotation(known["id"], **mark)
    return Change(what, UPDATED, (f"end: {_short(known.get('timeEnd'))} -> {closed_ms}",))


def _tag(name: str, value: object) -> str:
    """Return a tag, percent-encoded as in the dashboard and cut.

    Grafana cuts a tag at its second colon, and fails on more than 100 characters.
    """
    return f"{name}:{quote(str(value), safe='', errors='replace')[:TAG_CHARACTERS]}"


def _or_none(ask: Any, uid: str) -> Any:
    """Ask for an object that may not exist; return None if it does not.

    Grafana answers an Editor 403, not 404, if there is none. If there is one after all, the write fails.
    """
    try:
        return ask(uid)
    except GrafanaException as error:
        if error.status_code in (403, 404):
            return None
        raise


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Turn errors into a `PublishError` of one line."""
    try:
        yield
    except GrafanaException as error:
        meaning = _MEANINGS.get(error.status_code) or ("try again later" if error.status_code >= 500 else "")
        said = error.response.get("message", "") if isinstance(error.response, dict) else ""
        words = "; ".join(part for part in (meaning, _short(said) if said else "") if part)
        raise PublishError(f"{doing}: Grafana answers {error.status_code}: {words}") from None
    except requests.exceptions.JSONDecodeError:
        raise PublishError(f"{doing}: the answer is not from Grafana's API") from None
    except requests.RequestException as error:
        raise PublishError(f"{doing}: Grafana cannot be reached: {reason(error)}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise PublishError(f"{doing}: Grafana's answer is not what it should be: {type(error).__name__}") from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= WORDS_SHOWN else f"{text[:WORDS_SHOWN]}..."
