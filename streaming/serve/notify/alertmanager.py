"""Alertmanager, API v2 (`POST /api/v2/alerts`), one receiver per address.

Alertmanager identifies an alert by its labels: rule, severity, cluster and group, the labels of `[[groups]]`, and the
incident's id. Without that id two members of one group would be one alert, and the first to recover would resolve the
other. Member, client and host are in the annotations. Alertmanager forgets an alert at its `endsAt`. So open incidents
are sent again and again with an `endsAt` in the future, as Prometheus does; when one closes, `endsAt` is that instant.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import requests

from coordinator_model.wording import seconds
from streaming.config.text import mask_url
from streaming.serve.events import ranges
from streaming.serve.notify.base import SEVERITIES, Answer, Payload, post
from streaming.serve.notify.message import instant, shown
from streaming.store.database import clean
from streaming.store.store import wall_ms

EXPIRE_MS = 240_000  # four reminders, as in Prometheus: three lost ones do not resolve an alert
LABEL_CHARACTERS = 1_000  # a group id may have 32,000
TEXT_CHARACTERS = 4_000  # of an annotation
_ANNOTATIONS = (
    "summary", "cause", "evidence", "reason", "member_id", "instance_id", "client_id", "client_host",
    "client_software", "generation", "broker",
)  # fmt: skip


class Alertmanager:
    """One Alertmanager."""

    forgets = True
    messages_at_once = 200

    def __init__(self, url: str, severities: Sequence[str], severity_labels: Mapping[str, str] | None = None) -> None:
        masked = mask_url(url)
        digest = "" if masked == url else f" #{hashlib.sha256(url.encode()).hexdigest()[:8]}"  # of another user another
        self.name = clean(f"alertmanager {masked}{digest}", 255)
        self.severities = severities
        self._severity_labels = severity_labels or {}
        self._url = f"{url.rstrip('/')}/api/v2/alerts"
        self._session = requests.Session()

    def send(self, payloads: Sequence[Payload]) -> Answer:
        """Fire, repeat or resolve alerts, all in one POST."""
        now_ms = wall_ms()
        alerts = [made for payload in payloads for made in self._alerts(payload, now_ms)]
        return post(self._session, self._url, json.dumps(alerts))

    def _alerts(self, payload: Payload, now_ms: int) -> list[dict[str, Any]]:
        """Make an incident's alert. An escalation also resolves those of lesser severity, whose labels differ."""
        incident, alerts = payload["incident"], [self._alert(payload, now_ms)]
        if incident["transition"] == "escalated":
            ended = {**payload, "closed_ms": incident["at_ms"]}
            lesser = SEVERITIES[: SEVERITIES.index(incident["severity"])]
            resolved = (
                self._alert({**ended, "incident": {**incident, "severity": severity}}, now_ms)
                for severity in lesser
                if severity in self.severities
            )
            alerts += [one for one in resolved if one["labels"] != alerts[0]["labels"]]
        return alerts

    def _alert(self, payload: Payload, now_ms: int) -> dict[str, Any]:
        made = alert(payload, now_ms)
        severity = made["labels"]["severity"]
        made["labels"]["severity"] = self._severity_labels.get(severity, severity)
        return made


def alert(payload: Payload, now_ms: int) -> dict[str, Any]:
    """Return an incident as Alertmanager's alert object."""
    incident = payload["incident"]
    started_ms = min(payload["opened_ms"], now_ms)  # a broker's clock may be ahead of ours
    if payload["closed_ms"] is None:
        ends_ms = now_ms + EXPIRE_MS
    else:  # Alertmanager refuses an end before the start; one in the future would keep the alert firing
        ends_ms = max(started_ms + 1, min(payload["closed_ms"], now_ms))
    labels = {
        **payload["labels"],
        "alertname": incident["rule"],
        "severity": incident["severity"],
        "cluster": incident["cluster"],
        "group": incident["group"],
        "incident": incident["incident_id"],
    }
    made = {
        "labels": {name: clean(value, LABEL_CHARACTERS) for name, value in labels.items() if value not in (None, "")},
        "annotations": annotations(payload),
        "startsAt": instant(started_ms),
        "endsAt": instant(ends_ms),
    }
    return made | {"generatorURL": payload["group_url"]} if payload["group_url"] else made


def annotations(payload: Payload) -> dict[str, str]:
    """Return the annotations: which member is concerned, what happened, what to do. Empty ones are left out."""
    incident = payload["incident"]
    said = {name: incident.get(name) for name in _ANNOTATIONS}
    said |= {name: payload[name] for name in ("runbook_url", "group_url")}
    said |= {
        "deadline": instant(incident["deadline_ms"]) if incident.get("deadline_ms") is not None else None,
        "missed_by": None if payload["missed_by_ms"] is None else seconds(payload["missed_by_ms"]),
        "unread_partitions": ranges(payload["unread_partitions"]),
        "late": "true" if payload["late"] else None,
    }
    made = {name: shown(value, TEXT_CHARACTERS) for name, value in said.items() if value not in (None, "")}
    return made | {"description": payload["description"]}  # its lines are already escaped and cut
