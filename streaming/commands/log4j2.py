"""`log4j2`: the file that makes the brokers ship their group telemetry."""

import re
from collections.abc import Mapping
from pathlib import Path

import click

from streaming.log4j2 import STOCK_REQUEST_APPENDER, Snippet, as_properties, as_yaml
from streaming.log4j2_security import advice, security_of


def _servers(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    from streaming.config.kafka import server_addresses

    try:
        if text is not None:
            server_addresses(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return text


def _topic(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    from streaming.config.kafka import topic_name

    try:
        return None if text is None else topic_name(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _one_line(_: click.Context, __: click.Parameter, text: str) -> str:
    if not text.isprintable():
        raise click.BadParameter("control characters do not belong here")
    return text


def _path(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text == "":
        raise click.BadParameter("a path is needed")
    return None if text is None else _one_line(context, parameter, text)


def _properties(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Mapping[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[a-z0-9.]+", name) or not value.isprintable():
            raise click.BadParameter(f'"{text}" is not NAME=VALUE')
        found[name] = value
    return found


@click.command("log4j2")
@click.option(
    "--format",
    "form",
    type=click.Choice(["yaml", "properties"]),
    default="yaml",
    show_default=True,
    help="Format of the file.",
)
@click.option(
    "--config", type=click.Path(dir_okay=False, path_type=Path), help="monitor.toml: brokers, security and topic."
)
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,…",
    callback=_servers,
    help="Where the brokers send their lines: a listener that they can reach.  [default: from --config, else "
    "127.0.0.1:9092]",
)
@click.option(
    "--topic", callback=_topic, help="The topic for the lines.  [default: the first of --config, else group-telemetry]"
)
@click.option(
    "--key",
    default="${hostName}",
    show_default=True,
    callback=_one_line,
    help="The record key of a broker's lines: a log4j2 lookup that differs between brokers, such as ${env:HOSTNAME}.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_properties,
    help="A producer setting, such as security.protocol=SSL. May be repeated. Give no secret here: a SASL login "
    "belongs in a JAAS file on the broker (docs/telemetry.md).  [default: protocol and mechanism of --config, unless "
    "--bootstrap-servers]",
)
@click.option(
    "--request-appender",
    default=STOCK_REQUEST_APPENDER,
    show_default=True,
    callback=_one_line,
    help="The appender that the broker's own file gives kafka.request.logger. It stays at level warn. '' if none.",
)
@click.option(
    "--file",
    metavar="PATH",
    callback=_path,
    help="Write the lines to this file, for a log shipper, and not to the topic (docs/log-shippers.md).",
)
@click.option(
    "--refused-commits",
    is_flag=True,
    help="Also ship offset commits that were refused because their sender is no longer a member (rule zombie-commit). "
    "Accepted commits make no line.",
)
@click.option(
    "--coordinator-lookups",
    is_flag=True,
    help="Also ship FindCoordinator requests for groups. librdkafka sends one every ten minutes, which shows that a "
    "client that left is still alive (rule left-without-reason).",
)
@click.option(
    "--tier",
    type=click.Choice(["1", "2"]),
    default="2",
    show_default=True,
    help="1: only the INFO lines of the group coordinator. 2: the request log about groups too.",
)
@click.option(
    "--alone", is_flag=True, help="Print a complete file with a console appender, to replace the broker's own."
)
def log4j2_command(  # noqa: PLR0913, PLR0917 - one parameter an option
    form: str,
    config: Path | None,
    bootstrap_servers: str | None,
    topic: str | None,
    key: str,
    properties: Mapping[str, str],
    request_appender: str,
    file: str | None,
    refused_commits: bool,
    coordinator_lookups: bool,
    tier: str,
    alone: bool,
) -> None:
    """Print one log4j2 file for all brokers (Kafka 4). It ships what they log about groups into a topic.

    Each broker loads it after its own log4j2 file, which stays as it is (docs/telemetry.md):

    \b
    KAFKA_LOG4J_OPTS="-Dlog4j2.configurationFile=/opt/kafka/config/log4j2.yaml,/etc/kafka/group-telemetry.yaml"
    """  # noqa: D301 - click's own mark for a line that is not to be wrapped
    snippet = Snippet(key=key, properties=properties, request_appender=request_appender or None, alone=alone, file=file)
    snippet = snippet._replace(
        refused_commits=refused_commits, coordinator_lookups=coordinator_lookups, request_log=tier == "2"
    )
    if config is not None:
        from streaming.commands.settings import settings_of

        kafka = settings_of(config).kafka
        snippet = snippet._replace(
            bootstrap_servers=kafka.bootstrap_servers, topic=next(iter(kafka.telemetry_topics), snippet.topic)
        )
        if bootstrap_servers is None:
            security = security_of(kafka)
            snippet = snippet._replace(properties={**security, **properties})
            click.echo("".join(f"{line}\n" for line in advice(security, properties)), err=True, nl=False)
    if bootstrap_servers is not None:
        snippet = snippet._replace(bootstrap_servers=bootstrap_servers)
    if topic is not None:
        snippet = snippet._replace(topic=topic)
    click.echo(as_yaml(snippet) if form == "yaml" else as_properties(snippet), nl=False)
