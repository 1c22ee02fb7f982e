"""The log of `serve` as a receiver: one line per transition."""

from collections.abc import Sequence

import structlog

from streaming.serve.notify.base import Answer, Delivered, Payload

_LEVELS = {"info": "info", "warn": "warning", "page": "error"}
_SAID = ("labels", "missed_by_ms", "unread_partitions", "runbook_url", "group_url")


class Log:
    """A receiver that writes to the log and cannot fail."""

    name = "log"
    forgets = False
    messages_at_once = 1

    def __init__(self, severities: Sequence[str]) -> None:
        self.severities = severities
        self._log = structlog.get_logger("incident")

    def send(self, payloads: Sequence[Payload]) -> Answer:
        """Write one line for each transition."""
        for payload in payloads:
            incident = payload["incident"]
            level = "info" if incident["transition"] == "closed" else _LEVELS.get(incident["severity"], "warning")
            fields = {name: value for name, value in incident.items() if name not in ("kind", "transition")}
            fields |= {name: payload[name] for name in _SAID}
            getattr(self._log, level)(f"incident {incident['transition']}", **fields)
        return Delivered()
