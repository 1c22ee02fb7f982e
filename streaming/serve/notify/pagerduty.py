"""PagerDuty, Events API v2 (`POST /v2/enqueue`), for users without an Alertmanager.

An incident has one `dedup_key`. Opening and escalation trigger it, closing resolves it, so a repeated message changes
nothing. Limits: https://developer.pagerduty.com/docs/events-api-v2/trigger-events/ (summary 1,024 characters, an event
512 kB); https://developer.pagerduty.com/docs/events-api-v2/overview/ (202 accepted, 429 slow down).
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import requests

from streaming.serve.notify.alertmanager import annotations
from streaming.serve.notify.base import Answer, Payload, post
from streaming.serve.notify.message import instant, shown

SUMMARY_CHARACTERS = 1_024
_SEVERITY = {"info": "info", "warn": "warning", "page": "critical"}


class PagerDuty:
    """One service of PagerDuty. Its routing key is a secret, so its name shows a hash of the key."""

    forgets = False
    messages_at_once = 1

    def __init__(self, routing_key: str, url: str, severities: Sequence[str]) -> None:
        self.name = f"pagerduty #{hashlib.sha256(routing_key.encode()).hexdigest()[:8]}"
        self.severities = severities
        self._routing_key = routing_key
        self._url = f"{url.rstrip('/')}/v2/enqueue"
        self._session = requests.Session()

    def send(self, payloads: Sequence[Payload]) -> Answer:
        """Trigger or resolve one incident."""
        body = {"routing_key": self._routing_key, **event(payloads[0])}
        return post(self._session, self._url, json.dumps(body))


def event(payload: Payload) -> dict[str, Any]:
    """Return a transition as PagerDuty's event object, without the routing key."""
    incident = payload["incident"]
    dedup_key = f"group-monitor-{incident['incident_id']}"
    if incident["transition"] == "closed":
        return {"event_action": "resolve", "dedup_key": dedup_key}
    links = (("Group", payload["group_url"]), ("Runbook", payload["runbook_url"]))
    return {
        "event_action": "trigger",
        "dedup_key": dedup_key,
        "client": "group-monitor",
        "links": [{"text": text, "href": href} for text, href in links if href and "://" in href],
        "payload": {
            "summary": shown(f"{incident['group'] or incident['cluster']}: {incident['summary']}", SUMMARY_CHARACTERS)[
                :SUMMARY_CHARACTERS
            ],
            "source": shown(incident.get("client_host") or incident.get("broker") or incident["cluster"], 255)[:255],
            "severity": _SEVERITY[incident["severity"]],
            "timestamp": instant(payload["opened_ms"]),
            "component": shown(incident["group"], 255),
            "group": shown(incident["cluster"], 255),
            "class": incident["rule"],
            "custom_details": {**payload["labels"], **annotations(payload)},
        },
    }
