"""The `[kafka]` table: one set of settings, explicitly mapped to the different option names of three clients."""

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr, model_validator

from coordinator_model.decode.source_row import OFFSETS, REPORTS, TELEMETRY
from streaming.config.local_path import LocalPath
from streaming.config.telemetry_zone import zone_named

ENVIRONMENT_PREFIX = "GROUP_MONITOR_"
READER_GROUP_PREFIX = "group-monitor-run"
"""The prefix of the group ids of `run`'s readers: they do not join a group, but still ask for the offsets of one."""
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
_SERVER = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:/@\[\]]+)):(?P<port>\d{1,5})")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def server_addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Parse `host:port,…` into hosts and ports, IPv6 addresses without their brackets; raises ValueError."""
    addresses = []
    for server in bootstrap_servers.split(","):
        parts = _SERVER.fullmatch(server.strip())
        if parts is None or not 0 < int(parts["port"]) < 65_536:
            raise ValueError(f'"{server.strip()}" is not host:port')
        addresses.append((parts["bracketed"] or parts["host"], int(parts["port"])))
    return addresses


def _servers(text: str) -> str:
    server_addresses(text)
    return text


def topic_name(name: str) -> str:
    """Return the name of a topic; raises ValueError if Kafka allows no such name."""
    if not _TOPIC.fullmatch(name) or name in {".", ".."}:
        raise ValueError("the name of a topic is needed: letters, digits, dots, underscores and hyphens")
    return name


def _zone_name(name: str) -> str:
    zone_named(name)
    return name


TopicName = Annotated[str, AfterValidator(topic_name)]


class Table(BaseModel):
    """A table of `monitor.toml`: no unknown keys, no conversions, immutable, and no values in error messages."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Kafka(Table):
    """How to reach the brokers, and which topics to read."""

    bootstrap_servers: Annotated[str, AfterValidator(_servers)] = "127.0.0.1:9092"
    """Brokers to connect to first: `host:port` each, separated by commas."""
    offsets_topic: TopicName = "__consumer_offsets"
    """The topic of the group coordinator. Only tests need another name."""
    telemetry_topics: tuple[TopicName, ...] = ("group-telemetry",)
    """The topics of the brokers' request logs. Every line in them is believed: let only brokers write there."""
    telemetry_zone: Annotated[str, AfterValidator(_zone_name)] | None = None
    """The time zone of the dates in lines that a shipper sends from brokers' log files, as `Europe/Berlin` or `+02:00`.
    Without it, UTC. A date that names a zone is read in that zone. A line without a date has the date of the shipper's
    JSON, or, if it is not inside one, its record's timestamp.
    """
    client_telemetry_topics: tuple[TopicName, ...] = ("group-client-telemetry",)
    """The topics in which applications report when they last polled, and those into which an OpenTelemetry collector
    writes what clients pushed (`otlp_proto` or `otlp_json`). An application is believed about itself only.
    """
    security_protocol: SecurityProtocol = "PLAINTEXT"
    """The security protocol of the brokers' listener."""
    sasl_mechanism: SaslMechanism | None = None
    """How the user logs in. Needed with `SASL_PLAINTEXT` and `SASL_SSL`."""
    sasl_username: str | None = None
    """The user. Needed with SASL."""
    sasl_password: SecretStr | None = None
    """The password. It comes from the environment or from `sasl_password_file`, never from this file."""
    sasl_password_file: LocalPath | None = None
    """A file that holds the password, and nothing else."""
    ssl_cafile: LocalPath | None = None
    """The authorities to trust (PEM). Without it, those of the system."""
    ssl_certfile: LocalPath | None = None
    """The monitor's own certificate (PEM), if brokers want one. Needs `ssl_keyfile`."""
    ssl_keyfile: LocalPath | None = None
    """The private key of `ssl_certfile` (PEM, PKCS #8)."""
    ssl_key_password: SecretStr | None = None
    """The password of an encrypted `ssl_keyfile`. It comes from the environment or from `ssl_key_password_file`."""
    ssl_key_password_file: LocalPath | None = None
    """A file that holds that password, and nothing else."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        sasl = (self.sasl_mechanism, self.sasl_username, self.sasl_password)
        if self.security_protocol.startswith("SASL") and None in sasl:
            raise ValueError(
                f"{self.security_protocol} needs sasl_mechanism, sasl_username and a password "
                f"(sasl_password_file or {ENVIRONMENT_PREFIX}KAFKA_SASL_PASSWORD)"
            )
        if (self.ssl_certfile is None) != (self.ssl_keyfile is None):
            raise ValueError("ssl_certfile and ssl_keyfile come together")
        twice = sorted(name for name, times in Counter(self.topics).items() if times > 1)
        if twice:  # the topic decides who is trusted: brokers, or any application
            lists = "offsets_topic, telemetry_topics and client_telemetry_topics"
            raise ValueError(f"listed twice among {lists}: {', '.join(twice)}; list each topic once")
        return self

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics to read, the offsets topic first."""
        return tuple(topic for topics in self._topics_of().values() for topic in topics)

    @property
    def sources(self) -> dict[str, str]:
        """All topics to read, each with the source of its rows."""
        return {topic: source for source, topics in self._topics_of().items() for topic in topics}

    @property
    def other_topics(self) -> dict[str, str]:
        """Topics that hold neither records nor the request log, each with its source."""
        return {topic: source for topic, source in self.sources.items() if source not in (OFFSETS, TELEMETRY)}

    def _topics_of(self) -> dict[str, tuple[str, ...]]:
        return {
            OFFSETS: (self.offsets_topic,),
            TELEMETRY: self.telemetry_topics,
            REPORTS: self.client_telemetry_topics,
        }

    def spark_options(self) -> dict[str, str]:
        """Return Java client properties with Spark's prefix `kafka.`.

        Both clients can read PEM. Java needs the texts of certificate and key in one property each, the key as PKCS #8
        (kafka.apache.org, `ssl.keystore.key`), so the two files are read here.
        """
        options = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.security_protocol}
        if self.security_protocol.startswith("SASL"):
            options |= {"sasl.mechanism": str(self.sasl_mechanism), "sasl.jaas.config": self._jaas()}
        if self.security_protocol.endswith("SSL"):
            if self.ssl_cafile:
                options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ssl_cafile)}
            if self.ssl_certfile and self.ssl_keyfile:
                options |= {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.certificate.chain": read_text(self.ssl_certfile),
                    "ssl.keystore.key": read_text(self.ssl_keyfile),
                }
            if self.ssl_key_password:
                options["ssl.key.password"] = self.ssl_key_password.get_secret_value()
        return {f"kafka.{name}": value for name, value in options.items()}

    def python_client(self) -> dict[str, Any]:
        """Return keyword arguments for kafka-python's clients."""
        arguments: dict[str, Any] = {
            "bootstrap_servers": [server.strip() for server in self.bootstrap_servers.split(",")],
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.startswith("SASL"):
            arguments |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": revealed(self.sasl_password),
            }
        if self.security_protocol.endswith("SSL"):
            files = {"ssl_cafile": self.ssl_cafile, "ssl_certfile": self.ssl_certfile, "ssl_keyfile": self.ssl_keyfile}
            arguments |= {name: str(path) for name, path in files.items() if path}
            if self.ssl_key_password:
                arguments["ssl_password"] = revealed(self.ssl_key_password)
        return arguments

    def librdkafka_client(self) -> dict[str, Any]:
        """Return settings for confluent-kafka's clients."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
        }
        if self.security_protocol.startswith("SASL"):
            settings |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.sasl_username,
                "sasl.password": revealed(self.sasl_password),
            }
        if self.security_protocol.endswith("SSL"):
            files = {"ca": self.ssl_cafile, "certificate": self.ssl_certfile, "key": self.ssl_keyfile}
            settings |= {f"ssl.{name}.location": str(path) for name, path in files.items() if path}
            if self.ssl_key_password:
                settings["ssl.key.password"] = revealed(self.ssl_key_password)
        return settings

    def _jaas(self) -> str:
        module = "plain.PlainLoginModule" if self.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
        username, password = (
            text.replace("\\", "\\\\").replace('"', '\\"')
            for text in (str(self.sasl_username), str(revealed(self.sasl_password)))
        )
        name = f"org.apache.kafka.common.security.{module}"
        return f'{name} required username="{username}" password="{password}";'


def revealed(secret: SecretStr | None) -> str | None:
    """Return a secret's text."""
    return None if secret is None else secret.get_secret_value()


def read_text(path: Path) -> str:
    """Read a small text file, without a byte order mark."""
    return path.read_text(encoding="utf-8-sig")


def read_secret(path: Path) -> str:
    """Read a secret from its file, without the line end; raises `ValueError` if there is none.

    An empty secret is always a mistake: as a token of `serve` it would let everybody in.
    """
    try:
        secret = read_text(path).rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    if not secret.strip():
        raise ValueError(f"{path} is empty")
    return secret
