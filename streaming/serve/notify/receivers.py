"""The configured receivers, one per address."""

from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from streaming.config.settings import (
    AlertmanagerReceiver,
    ConfigError,
    LogReceiver,
    PagerDutyReceiver,
    Settings,
    WebhookReceiver,
)
from streaming.serve.notify.alertmanager import Alertmanager
from streaming.serve.notify.base import Receiver, at_least
from streaming.serve.notify.log import Log
from streaming.serve.notify.pagerduty import PagerDuty
from streaming.serve.notify.webhook import Webhook


def receivers_of(settings: Settings) -> list[Receiver]:
    """Create the configured receivers; raises `ConfigError` if two have one name: one would get what both want."""
    receivers = list(_receivers(settings))
    names = Counter(receiver.name for receiver in receivers)
    if twice := [name for name, times in names.items() if times > 1]:
        raise ConfigError(f"[[notify]]: named more than once: {', '.join(twice)}. Keep one of each")
    return receivers


def _receivers(settings: Settings) -> Iterator[Receiver]:
    for block in settings.notify:
        match block:
            case AlertmanagerReceiver():
                severities = at_least(block.min_severity)
                renamed = {str(name): label for name, label in block.severity_labels.items()}
                yield from (Alertmanager(url, severities, renamed) for url in block.urls)
            case PagerDutyReceiver():
                yield PagerDuty(block.routing_key(), block.url, at_least(block.min_severity))
            case WebhookReceiver():
                yield Webhook(block.address(), at_least(block.min_severity))
            case LogReceiver():
                yield Log(at_least(block.min_severity))
            case _:
                assert_never(block)
