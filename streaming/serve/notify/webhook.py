"""Any service that accepts a JSON POST: the fields of the contract's incident object, and those that `message` adds."""

import hashlib
import json
from collections.abc import Sequence
from urllib.parse import urlsplit

import requests

from streaming.serve.notify.base import Answer, Payload, post
from streaming.store.database import clean


class Webhook:
    """One address. If a response is lost, its message is sent twice, with the same `Idempotency-Key`."""

    forgets = False
    messages_at_once = 1

    def __init__(self, url: str, severities: Sequence[str]) -> None:
        parts = urlsplit(url)  # the path may be secret; the hash distinguishes two addresses of one host
        digest = hashlib.sha256(url.encode()).hexdigest()[:8]
        self.name = clean(f"webhook {parts.scheme}://{parts.hostname} #{digest}", 255)
        self.severities = severities
        self._url = url
        self._session = requests.Session()

    def send(self, payloads: Sequence[Payload]) -> Answer:
        """POST one transition."""
        (payload,) = payloads
        incident = payload["incident"]
        body = {**{name: value for name, value in payload.items() if name != "incident"}, **incident}
        step = f"{incident['transition']}-{incident['severity']}-{incident['at_ms']}"  # an incident may open again
        key = f"{incident['incident_id']}-{step}"
        return post(self._session, self._url, json.dumps(body), {"Idempotency-Key": key})
