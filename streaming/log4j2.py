"""The log4j2 file that makes a Kafka 4 broker ship its group telemetry: one for all brokers, as YAML or as properties.

It stands beside the broker's own file (log4j2 merges the files that `log4j2.configurationFile` names, separated by
commas), or alone. Both formats say the same, from the same facts.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from streaming.telemetry_topics import TELEMETRY_TOPIC

STOCK_REQUEST_APPENDER: Final = "RequestAppender"
"""What Kafka's own log4j2.yaml gives `kafka.request.logger`: it would get every request of the broker at DEBUG."""
APIS: Final = (
    "HEARTBEAT", "JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT", "SHARE_GROUP_HEARTBEAT",
    "STREAMS_GROUP_HEARTBEAT", "LIST_GROUPS",
)  # fmt: skip
REGEX: Final = f'(?s).*"requestApiKeyName":"({"|".join(APIS)})".*'
"""`(?s)`: a client id may hold a line separator."""
PRODUCER: Final[Mapping[str, tuple[str, str]]] = {
    "linger.ms": ("20", ""),
    "batch.size": ("65536", "the appender's own is 0: a request for each line, and a backlog that only grows"),
    "max.block.ms": ("100", ""),
    "max.request.size": (
        "16777216",
        "a JoinGroup answer lists the whole group; max.message.bytes of the topic too",
    ),
    "compression.type": ("lz4", ""),
    "acks": ("all", "a leader that wakes from a pause is no leader: what it alone accepts is cut off"),
}
"""Settings of the appender's producer -> (value, why)."""
BUFFER_LINES: Final = "8192"
PATTERN: Final = "[%d{ISO8601}] %p %m (%c)%n"
HEAD: Final = """\
Group telemetry of a stock Kafka 4.x broker: made by `group-monitor log4j2`, tried on 4.3.1. Create the topic first
(`group-monitor doctor --create-topics`). `key` names the broker and keeps its lines in order in one partition: it has
to differ on each broker, and to stay the same when a broker starts again. Async with blocking=false is vital: without
it an unreachable telemetry topic stalls the broker's network threads (produce p50 6 -> 203 ms measured; with it 7 ms).
Lines are dropped instead, which shows on the broker's console only (docs/telemetry.md)."""


class Snippet(NamedTuple):
    """What differs between clusters. `properties` are further settings of the appender's producer (security).

    `request_appender` names the appender that the broker's own file gives `kafka.request.logger`, None: it has none.
    `alone`: a whole file, with a console for all else, in the place of the broker's own.
    """

    bootstrap_servers: str = "127.0.0.1:9092"
    topic: str = TELEMETRY_TOPIC
    key: str = "${hostName}"
    properties: Mapping[str, str] = {}
    request_appender: str | None = STOCK_REQUEST_APPENDER
    alone: bool = False
    level: str = "debug"

    def producer(self) -> Iterator[tuple[str, str, str]]:
        """Name, value and reason of each setting of the producer; `properties` win."""
        settings = {"bootstrap.servers": (self.bootstrap_servers, ""), **PRODUCER}
        settings |= {name: (value, "") for name, value in self.properties.items()}
        for name, (value, why) in settings.items():
            yield name, value, why

    @property
    def quieted(self) -> str | None:
        """The appender that must not get what the logger now logs."""
        return None if self.alone else self.request_appender


def as_yaml(snippet: Snippet) -> str:
    """Write the file as `log4j2.yaml`."""
    properties = "".join(
        f"        - {{name: {name}, value: {_quoted(value)}}}{f' # {why}' if why else ''}\n"
        for name, value, why in snippet.producer()
    )
    quieted = f", {{ref: {_quoted(snippet.quieted)}, level: warn}}" if snippet.quieted else ""
    console = f"    Console:\n      name: Out\n      PatternLayout: {{pattern: {_quoted(PATTERN)}}}\n"
    root = "    Root: {level: info, AppenderRef: [{ref: Out}]}\n"
    return f"""\
{_comment()}Configuration:
  Appenders:
    Kafka:
      name: GroupTelemetryKafka
      topic: {_quoted(snippet.topic)}
      key: {_quoted(snippet.key)}
      syncSend: "false"
      sendEventTimestamp: "true"
      PatternLayout: {{pattern: "%m"}}
      Property:
{properties}\
    Async:
      name: GroupTelemetry
      blocking: "false"
      bufferSize: {BUFFER_LINES}
      RegexFilter:
        regex: '{REGEX}'
        onMatch: ACCEPT
        onMismatch: DENY
      AppenderRef: [{{ref: GroupTelemetryKafka}}]
{console if snippet.alone else ""}\
  Loggers:
{root if snippet.alone else ""}\
    Logger:
      - name: kafka.request.logger
        level: {snippet.level}
        additivity: false
        AppenderRef: [{{ref: GroupTelemetry}}{quieted}]
"""


def as_properties(snippet: Snippet) -> str:
    """Write the file as `log4j2.properties`."""
    kafka, group, logger = "appender.groupTelemetryKafka", "appender.groupTelemetry", "logger.groupTelemetry"
    lines = {
        f"{kafka}.type": "Kafka",
        f"{kafka}.name": "GroupTelemetryKafka",
        f"{kafka}.topic": snippet.topic,
        f"{kafka}.key": snippet.key,
        f"{kafka}.syncSend": "false",
        f"{kafka}.sendEventTimestamp": "true",
        f"{kafka}.layout.type": "PatternLayout",
        f"{kafka}.layout.pattern": "%m",
    }
    for number, (name, value, _) in enumerate(snippet.producer(), start=1):
        part = f"{kafka}.p{number}"
        lines |= {f"{part}.type": "Property", f"{part}.name": name, f"{part}.value": value}
    lines |= {
        f"{group}.type": "Async",
        f"{group}.name": "GroupTelemetry",
        f"{group}.blocking": "false",
        f"{group}.bufferSize": BUFFER_LINES,
        f"{group}.filter.groups.type": "RegexFilter",
        f"{group}.filter.groups.regex": REGEX,
        f"{group}.filter.groups.onMatch": "ACCEPT",
        f"{group}.filter.groups.onMismatch": "DENY",
        f"{group}.kafka.type": "AppenderRef",
        f"{group}.kafka.ref": "GroupTelemetryKafka",
        f"{logger}.name": "kafka.request.logger",
        f"{logger}.level": snippet.level,
        f"{logger}.additivity": "false",
        f"{logger}.appenderRef.telemetry.ref": "GroupTelemetry",
    }
    if snippet.quieted:
        lines |= {f"{logger}.appenderRef.own.ref": snippet.quieted, f"{logger}.appenderRef.own.level": "warn"}
    if snippet.alone:
        console = "appender.console"
        lines |= {f"{console}.type": "Console", f"{console}.name": "Out", f"{console}.layout.type": "PatternLayout"}
        lines |= {f"{console}.layout.pattern": PATTERN, "rootLogger.level": "info"}
        lines |= {"rootLogger.appenderRef.console.ref": "Out"}
    return _comment() + "".join(f"{name} = {_escaped(value)}\n" for name, value in lines.items())


def _comment() -> str:
    return "".join(f"# {line}\n" for line in HEAD.splitlines())


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _escaped(value: str) -> str:
    r"""Write a value as java.util.Properties reads it: a backslash begins an escape."""
    return value.replace("\\", "\\\\")
