"""The log4j2 file that makes a Kafka 4 broker ship its group telemetry: one for all brokers, as YAML or as properties.

One appender gets the request log's lines about groups and the INFO lines of the group coordinator.

The file is used in addition to the broker's own (log4j2 merges the files that `log4j2.configurationFile` names,
separated by commas), or alone. Both formats are made from the same facts and mean the same.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from streaming.telemetry_topics import TELEMETRY_TOPIC

STOCK_REQUEST_APPENDER: Final = "RequestAppender"
"""The appender of `kafka.request.logger` in Kafka's own log4j2.yaml: at DEBUG it would get every request."""
APIS: Final = (
    "HEARTBEAT", "JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT", "SHARE_GROUP_HEARTBEAT",
    "STREAMS_GROUP_HEARTBEAT", "LIST_GROUPS", "PUSH_TELEMETRY",
)  # fmt: skip
REGEX: Final = rf'(?s)\[GroupCoordinator id=.*|.*"requestApiKeyName":"({"|".join(APIS)})".*'
"""`(?s)`: a client id may contain a line separator. A line that begins with the coordinator's name is from its log."""
REFUSED_COMMIT: Final = '(TXN_)?OFFSET_COMMIT".*"errorCode":(22|25|82)[,}].*'
"""A commit that was refused because its sender is no longer a member. Accepted commits are not let through."""
LOOKUP: Final = 'FIND_COORDINATOR".*"keyType":0[,}].*"errorCode":0[,}].*'
"""FindCoordinator for a group. While there is no coordinator, all clients repeat it."""
COORDINATOR_LOGGERS: Final = ("org.apache.kafka.coordinator.group", "org.apache.kafka.coordinator.common.runtime")
"""The loggers of what a group coordinator does with members, and of its loading and unloading of groups."""
PRODUCER: Final[Mapping[str, tuple[str, str]]] = {
    "linger.ms": ("20", ""),
    "batch.size": ("65536", "the appender's own is 0: a request for each line, and a backlog that only grows"),
    "max.block.ms": ("100", ""),
    "max.request.size": (
        "16777216",
        "a JoinGroup answer lists the whole group; max.message.bytes of the topic too",
    ),
    "compression.type": ("lz4", ""),
    "enable.metrics.push": ("false", "metrics of this producer tell nothing of a group"),
    "acks": ("all", "a leader that wakes from a pause is no leader: what it alone accepts is cut off"),
    "max.in.flight.requests.per.connection": (
        "1",
        "with more, a new leader may accept a later batch first and refuse the first one (KAFKA-15591)",
    ),
}
"""Settings of the appender's producer -> (value, reason)."""
BUFFER_LINES: Final = "8192"
PATTERN: Final = "[%d{ISO8601}] %p %m (%c)%n"
FILE_PATTERN: Final = "[%d{ISO8601_OFFSET_DATE_TIME_HHCMM}{UTC}] %p %m (%c)%n"
"""With a zone, so that no shipper and no `telemetry_zone` can misread it."""
FILE_SIZE: Final = "64MB"
FILES_KEPT: Final = "3"
HEAD: Final = """\
Group telemetry of a stock Kafka 4.x broker: made by `group-monitor log4j2`, tried on 4.3.1. Create the topic first
(`group-monitor doctor --create-topics`). `key` names the broker and keeps its lines in order in one partition: it has
to differ on each broker, and to stay the same when a broker starts again. Async with blocking=false is vital: without
it an unreachable telemetry topic stalls the broker's network threads. Lines are dropped instead, which shows on the
broker's console only (docs/telemetry.md)."""

FILE_HEAD: Final = """\
Group telemetry of a stock Kafka 4.x broker, into a file for a log shipper: made by `group-monitor log4j2 --file`, tried
on 4.3.1. Async with blocking=false: where the disk is too slow lines are dropped, and no request waits
(docs/log-shippers.md)."""


class Snippet(NamedTuple):
    """What differs between clusters. `properties` are further settings of the appender's producer (security).

    `request_appender` names the appender of `kafka.request.logger` in the broker's own file (None: it has none).
    `alone`: a complete file, with a console appender for everything else, which replaces the broker's own.
    `request_log` False leaves the request log as it is; `level` is its initial level. `coordinator_log`: whether the
    coordinator's INFO lines are shipped.
    """

    bootstrap_servers: str = "127.0.0.1:9092"
    topic: str = TELEMETRY_TOPIC
    key: str = "${hostName}"
    properties: Mapping[str, str] = {}
    request_appender: str | None = STOCK_REQUEST_APPENDER
    alone: bool = False
    level: str = "debug"
    file: str | None = None
    """A file for a log shipper, instead of the topic."""
    refused_commits: bool = False
    """Whether refused commits are shipped as well."""
    coordinator_lookups: bool = False
    """Whether requests for a group's coordinator are shipped as well."""
    request_log: bool = True
    coordinator_log: bool = True

    def producer(self) -> Iterator[tuple[str, str, str]]:
        """Yield name, value and reason of each setting of the producer; `properties` take precedence."""
        settings = {"bootstrap.servers": (self.bootstrap_servers, ""), **PRODUCER}
        settings |= {name: (value, "") for name, value in self.properties.items()}
        for name, (value, why) in settings.items():
            yield name, value, why

    @property
    def regex(self) -> str:
        """The pattern of the lines that are shipped."""
        more = [REFUSED_COMMIT] * self.refused_commits + [LOOKUP] * self.coordinator_lookups
        if not more:
            return REGEX
        apis = "|".join([rf'({"|".join(APIS)})".*', *more])
        return rf'(?s)\[GroupCoordinator id=.*|.*"requestApiKeyName":"({apis})'

    @property
    def target(self) -> str:
        """The name of the appender that writes the lines."""
        return "GroupTelemetryFile" if self.file else "GroupTelemetryKafka"

    @property
    def quieted(self) -> str | None:
        """The broker's own appender, which must not get the lines that the logger now logs."""
        return None if self.alone else self.request_appender

    @property
    def coordinator_loggers(self) -> tuple[str, ...]:
        """The loggers whose INFO lines are shipped; they also still write where they wrote before."""
        return COORDINATOR_LOGGERS if self.coordinator_log else ()


def as_yaml(snippet: Snippet) -> str:
    """Write the file as `log4j2.yaml`."""
    loggers = "".join(f"      - {logger}\n" for logger in _yaml_loggers(snippet))
    console = f"    Console:\n      name: Out\n      PatternLayout: {{pattern: {_quoted(PATTERN)}}}\n"
    root = "    Root: {level: info, AppenderRef: [{ref: Out}]}\n"
    return f"""\
{_comment(snippet)}Configuration:
  Appenders:
{_file_yaml(snippet.file) if snippet.file else _kafka_yaml(snippet)}\
    Async:
      name: GroupTelemetry
      blocking: "false"
      bufferSize: {BUFFER_LINES}
      RegexFilter:
        regex: '{snippet.regex}'
        onMatch: ACCEPT
        onMismatch: DENY
      AppenderRef: [{{ref: {snippet.target}}}]
{console if snippet.alone else ""}\
  Loggers:
{root if snippet.alone else ""}\
    Logger:
{loggers}"""


def _yaml_loggers(snippet: Snippet) -> Iterator[str]:
    if snippet.request_log:
        quieted = f", {{ref: {_quoted(snippet.quieted)}, level: warn}}" if snippet.quieted else ""
        level = f"level: {snippet.level}\n        additivity: false"
        yield f"name: kafka.request.logger\n        {level}\n        AppenderRef: [{{ref: GroupTelemetry}}{quieted}]"
    for name in snippet.coordinator_loggers:
        yield f"name: {name}\n        level: info\n        AppenderRef: [{{ref: GroupTelemetry, level: info}}]"


def _kafka_yaml(snippet: Snippet) -> str:
    properties = "".join(
        f"        - {{name: {name}, value: {_quoted(value)}}}{f' # {why}' if why else ''}\n"
        for name, value, why in snippet.producer()
    )
    return f"""\
    Kafka:
      name: {snippet.target}
      topic: {_quoted(snippet.topic)}
      key: {_quoted(snippet.key)}
      syncSend: "false"
      sendEventTimestamp: "true"
      PatternLayout: {{pattern: "%m"}}
      Property:
{properties}"""


def _file_yaml(file: str) -> str:
    """Write the appender of a file of bounded size; it is flushed whenever the queue is empty."""
    return f"""\
    RollingFile:
      name: GroupTelemetryFile
      fileName: {_quoted(file)}
      filePattern: {_quoted(f"{file}.%i")}
      immediateFlush: "false"
      PatternLayout: {{pattern: {_quoted(FILE_PATTERN)}}}
      SizeBasedTriggeringPolicy: {{size: {FILE_SIZE}}}
      DefaultRolloverStrategy: {{max: {FILES_KEPT}}}
"""


def as_properties(snippet: Snippet) -> str:
    """Write the file as `log4j2.properties`."""
    group = "appender.groupTelemetry"
    lines = _file_properties(snippet.file) if snippet.file else _kafka_properties(snippet)
    lines |= {
        f"{group}.type": "Async",
        f"{group}.name": "GroupTelemetry",
        f"{group}.blocking": "false",
        f"{group}.bufferSize": BUFFER_LINES,
        f"{group}.filter.groups.type": "RegexFilter",
        f"{group}.filter.groups.regex": snippet.regex,
        f"{group}.filter.groups.onMatch": "ACCEPT",
        f"{group}.filter.groups.onMismatch": "DENY",
        f"{group}.target.type": "AppenderRef",
        f"{group}.target.ref": snippet.target,
        **_properties_loggers(snippet),
    }
    if snippet.alone:
        console = "appender.console"
        lines |= {f"{console}.type": "Console", f"{console}.name": "Out", f"{console}.layout.type": "PatternLayout"}
        lines |= {f"{console}.layout.pattern": PATTERN, "rootLogger.level": "info"}
        lines |= {"rootLogger.appenderRef.console.ref": "Out"}
    return _comment(snippet) + "".join(f"{name} = {_escaped(value)}\n" for name, value in lines.items())


def _properties_loggers(snippet: Snippet) -> dict[str, str]:
    lines: dict[str, str] = {}
    if snippet.request_log:
        logger = "logger.groupTelemetry"
        lines |= {f"{logger}.name": "kafka.request.logger", f"{logger}.level": snippet.level}
        lines |= {f"{logger}.additivity": "false", f"{logger}.appenderRef.telemetry.ref": "GroupTelemetry"}
        if snippet.quieted:
            lines |= {f"{logger}.appenderRef.own.ref": snippet.quieted, f"{logger}.appenderRef.own.level": "warn"}
    for number, name in enumerate(snippet.coordinator_loggers, start=1):
        logger = f"logger.groupCoordinator{number}"
        lines |= {f"{logger}.name": name, f"{logger}.level": "info"}
        lines |= {f"{logger}.appenderRef.telemetry.ref": "GroupTelemetry"}
        lines |= {f"{logger}.appenderRef.telemetry.level": "info"}
    return lines


def _kafka_properties(snippet: Snippet) -> dict[str, str]:
    kafka = "appender.groupTelemetryKafka"
    lines = {
        f"{kafka}.type": "Kafka",
        f"{kafka}.name": snippet.target,
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
    return lines


def _file_properties(file: str) -> dict[str, str]:
    rolling = "appender.groupTelemetryFile"
    return {
        f"{rolling}.type": "RollingFile",
        f"{rolling}.name": "GroupTelemetryFile",
        f"{rolling}.fileName": file,
        f"{rolling}.filePattern": f"{file}.%i",
        f"{rolling}.immediateFlush": "false",
        f"{rolling}.layout.type": "PatternLayout",
        f"{rolling}.layout.pattern": FILE_PATTERN,
        f"{rolling}.policy.type": "SizeBasedTriggeringPolicy",
        f"{rolling}.policy.size": FILE_SIZE,
        f"{rolling}.strategy.type": "DefaultRolloverStrategy",
        f"{rolling}.strategy.max": FILES_KEPT,
    }


def _comment(snippet: Snippet) -> str:
    return "".join(f"# {line}\n" for line in (FILE_HEAD if snippet.file else HEAD).splitlines())


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _escaped(value: str) -> str:
    r"""Escape a value for java.util.Properties, where a backslash begins an escape."""
    return value.replace("\\", "\\\\")
