"""`monitor.toml` -> `Settings`: strict, frozen, and without printed secrets.

Unknown keys and wrong types are errors that name the file, the line and what was probably meant. Secrets are never in
this file: they come from the environment (`Secrets`) or from a file named by a `*_file` key, are held as `SecretStr`,
and `Settings.effective` masks them.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args, get_type_hints
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from coordinator_model.lag.columns import MAX_HISTORY
from coordinator_model.lag.partition import WINDOW
from coordinator_model.replica.rebalances import MAX_REBALANCES
from coordinator_model.thresholds import Thresholds
from streaming.config.environment import IS_EMPTY, add_environment, require_text, variables_of
from streaming.config.group_patterns import GroupThresholds, compiled, group_patterns
from streaming.config.kafka import ENVIRONMENT_PREFIX, Kafka, Table, read_secret, revealed
from streaming.config.local_path import LocalPath, without_scheme
from streaming.config.problems import Problems, described
from streaming.config.text import as_toml, mask_url
from streaming.config.toml_errors import ConfigError, TomlPath, did_you_mean, key_lines, parse_toml

__all__ = ["ConfigError", "Kafka", "Policy", "Settings", "load"]

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
_SQLITE = re.compile(r"sqlite(\+\w+)?:///")
_OWN_LABELS = frozenset({"alertname", "severity", "cluster", "group", "incident", "type", "state"})


class Secrets(BaseSettings):
    """Values that only the environment may set, such as `GROUP_MONITOR_KAFKA_SASL_PASSWORD`."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, extra="ignore", hide_input_in_errors=True)
    kafka_sasl_password: SecretStr | None = None
    kafka_ssl_key_password: SecretStr | None = None
    run_spark_secret: SecretStr | None = None
    store_password: SecretStr | None = None
    serve_token: SecretStr | None = None


def _regex(pattern: str) -> str:
    compiled(pattern)
    return pattern


def _label_name(name: str) -> str:
    if not _LABEL_NAME.fullmatch(name):
        raise ValueError(f'label "{name}" is not a Prometheus label name ([a-zA-Z_][a-zA-Z0-9_]*)')
    if name in _OWN_LABELS:
        raise ValueError(f'label "{name}" is set by the monitor itself')
    return name


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # its text quotes the URL, which may contain a password
        raise ValueError("not a URL: brackets and unusual characters in it have to be percent-encoded") from None


def _http_url(url: str) -> str:
    parts = _parts(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an http:// or https:// URL is needed")
    return url


def _host_name(name: str) -> str:
    if not _HOST_NAME.fullmatch(name):
        raise ValueError("a plain host name is needed, without scheme, port or path")
    return name


def _listen_address(host: str) -> str:
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("an address or the name of a host is needed") from None
    return host


def _database_url(url: str) -> str:
    parts = _parts(url)
    if parts.scheme.partition("+")[0] == "postgresql":
        return url
    sqlite = _SQLITE.match(url)
    file = url[sqlite.end() :].partition("?")[0] if sqlite else ""
    if file in ("", ":memory:"):
        raise ValueError(
            "sqlite:///FILE or postgresql+psycopg://user@host/database is needed; run and serve share the file"
        )
    without_scheme(file)
    return url


Pattern = Annotated[str, AfterValidator(_regex)]
LabelName = Annotated[str, AfterValidator(_label_name)]
Link = Annotated[str, AfterValidator(_http_url)]
"""A URL that alerts and pages show, so that it is no secret."""
_MASKED = PlainSerializer(mask_url, when_used="json")
HttpUrl = Annotated[str, AfterValidator(_http_url), _MASKED]
DatabaseUrl = Annotated[str, AfterValidator(_database_url), _MASKED]
HostName = Annotated[str, AfterValidator(_host_name)]
MOST = 2**31 - 1
"""The largest number, as in Kafka's own settings: 24 days in milliseconds. A thread cannot wait much longer ones."""
Positive = Annotated[int, Field(gt=0, le=MOST)]
Mode = Literal["off", "record", "notify"]
Severity = Literal["info", "warn", "page"]


class Run(Table):
    """The Spark job."""

    data_folder: LocalPath = Path("monitor-data")
    """The folder of the checkpoints. Each cluster needs its own."""
    trigger_ms: Annotated[int, Field(gt=0, le=5_000)] = 800
    """How often a batch begins. On average a deadline waits half of this before it is judged (decision 0011). With each
    batch `run` gives a sign of life, which `monitor-stalled` waits for.
    """
    view_refresh_ms: Positive = 10_000
    """How often a group that does not change is written to the database. Its members' time left can be this old."""
    operator_key: Literal["shard", "group"] = "shard"
    """What the Spark job keeps one state for: a partition of `__consumer_offsets` (`shard`), or each group, which costs
    20 to 40 times more.
    """
    shard_split: Positive = 1
    """How many states share the groups of a partition, if one partition is too much for a core."""
    shuffle_partitions: Positive | None = None
    """Spark's `spark.sql.shuffle.partitions`. Without it, one for each core. A checkpoint keeps its first value."""
    master: str = "local[*]"
    """Spark's master: `local[*]`, `local[2]`, `spark://host:7077`."""
    standby: bool = False
    """If another `run` watches this cluster: wait, and take over when it ends. Otherwise this one ends at once."""
    spark_secret: SecretStr | None = None
    """The `spark.authenticate.secret` of a standalone cluster. With any other master, one is made at each start."""
    spark_secret_file: LocalPath | None = None
    """A file that holds the secret, and nothing else."""

    @model_validator(mode="after")
    def _authenticated(self) -> Self:
        if self.master.startswith("spark://") and self.spark_secret is None:
            raise ValueError(
                f"{self.master} needs the secret of the cluster (spark_secret_file or "
                f"{ENVIRONMENT_PREFIX}RUN_SPARK_SECRET): its master and workers run with spark.authenticate"
            )
        return self

    @property
    def on_this_machine(self) -> bool:
        """Whether all of Spark's processes are on this machine."""
        return re.fullmatch(r"local(\[.*\]|-cluster\[.*\])?", self.master) is not None


class StoreSettings(Table):
    """The SQL database that `run` writes and `serve` reads."""

    url: DatabaseUrl = "sqlite:///monitor-data/monitor.db"
    """SQLAlchemy's URL: `sqlite:///FILE` on one machine, `postgresql+psycopg://user@host/database` on several. A
    PostgreSQL that vanished from the network is an error after 10 s (connecting) or 20 s, unless the URL sets
    `connect_timeout`, `tcp_user_timeout` or `keepalives_…` itself.
    """
    password: SecretStr | None = None
    """The password of the database user. It comes from the environment or from `password_file`."""
    password_file: LocalPath | None = None
    """A file that holds the password, and nothing else."""
    retention_days: Positive = 30
    """How long closed incidents, generations and delivered messages are kept. A cluster whose `run` has been silent for
    longer than that, and for longer than 7 days, is forgotten: its incidents close, its groups are deleted.
    """

    def connection_url(self) -> str:
        """Return the URL with its password filled in; never print it."""
        parts = urlsplit(self.url)
        if self.password is None or not parts.username:
            return self.url
        host = parts.netloc.rpartition("@")[2]
        user = f"{parts.username}:{quote(self.password.get_secret_value(), safe='')}"
        return urlunsplit(parts._replace(netloc=f"{user}@{host}"))


class Serve(Table):
    """The HTTP side."""

    host: Annotated[str, AfterValidator(_listen_address)] = "127.0.0.1"
    """The address to listen on. `0.0.0.0` is every address of this machine."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8_844
    """The port to listen on. 0 chooses a free one."""
    monitor_stalled_ms: Positive = 15_000
    """After how long without a sign of life of `run` the alert `monitor-stalled` is sent; at least two minutes while it
    starts or catches up, because its batches are long then.
    """
    public_url: Link | None = None
    """The address at which people reach this server. Alerts link to its pages."""
    allowed_hosts: tuple[HostName, ...] = ()
    """Further host names that requests may use. Addresses, localhost and `public_url`'s name are always allowed."""
    rules_url: Link | None = None
    """Where you keep runbooks of your own, `<rules_url>/<rule>.md`. Alerts then link there, not to `/rules/<rule>` of
    this server. The `runbook_url` of a group comes first.
    """
    token: SecretStr | None = None
    """Readers have to send this token, as `Authorization: Bearer` or as a password with any user name. It comes from
    the environment or from `token_file`. Without a token, everybody may read.
    """
    token_file: LocalPath | None = None
    """A file that holds the token, and nothing else."""
    tls_certfile: LocalPath | None = None
    """The certificate of this server (PEM): it then speaks HTTPS. Needs `tls_keyfile`."""
    tls_keyfile: LocalPath | None = None
    """The private key of `tls_certfile` (PEM, not encrypted)."""
    partition_metrics: bool = False
    """Whether `/metrics` has series of each partition that a group commits to, at most 20,000. Groups and topics have
    theirs in any case.
    """
    heartbeat_url: HttpUrl | None = None
    """The address of a dead man's switch. It gets a POST every `heartbeat_ms` while the monitor is well."""
    heartbeat_url_file: LocalPath | None = None
    """A file that holds that URL, if the URL itself is a secret."""
    heartbeat_ms: Positive = 60_000
    """How often that POST is sent."""

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if (self.tls_certfile is None) != (self.tls_keyfile is None):
            raise ValueError("tls_certfile and tls_keyfile belong together")
        if self.heartbeat_url and self.heartbeat_url_file:
            raise ValueError("either heartbeat_url or heartbeat_url_file")
        return self

    def address(self, port: int) -> str:
        """Return the URL of this server at a port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_certfile else 'http'}://{host}:{port}"

    def heartbeat_address(self) -> str | None:
        """Return the dead man's switch's URL, which may be a secret, or None. Raises `ConfigError`."""
        if self.heartbeat_url_file is None:
            return self.heartbeat_url
        try:
            return _http_url(read_secret(self.heartbeat_url_file).strip())
        except ValueError as error:
            raise ConfigError(f"[serve] heartbeat_url_file: {error}") from None


class Quality(Table):
    """Checks of the stored data as a whole, made by `serve`. They need the extra `quality`."""

    enabled: bool = True
    """Whether `serve` checks."""
    every_ms: Positive = 30_000
    """How often it checks."""
    sample_rows: Annotated[int, Field(gt=0, le=10_000)] = 1_000
    """How many rows of each table a check looks at."""


# With more than is remembered a rule could never be true. A group's lag is remembered once in ten seconds.
_AT_MOST = {
    "at_risk_ratio": 1,
    "poll_at_risk_ratio": 1,
    "storm_rebalances": MAX_REBALANCES,
    "stall_intervals": WINDOW - 1,
    "lag_growing_ms": MAX_HISTORY * 10_000,
}
# A model with exactly the fields of `Thresholds`, all optional, so that each threshold is defined in one place only.
_OVERRIDES: dict[str, Any] = {
    name: (Annotated[kind | None, Field(gt=0, le=_AT_MOST.get(name, MOST))], None)
    for name, kind in get_type_hints(Thresholds).items()
}
ThresholdOverrides = create_model("ThresholdOverrides", __base__=Table, **_OVERRIDES)


@lru_cache  # because it is called for each group in each batch
def _overridden(base: Thresholds, overrides: BaseModel) -> Thresholds:
    return dataclasses.replace(base, **overrides.model_dump(exclude_unset=True, exclude_none=True))


class GroupBlock(Table):
    """One `[[groups]]` block. For each group only the first block counts whose `pattern` matches its whole id."""

    pattern: Pattern
    """A regular expression that has to match the whole group id. Syntax: RE2 (no lookahead); `.` is any character."""
    mode: Mode = "notify"
    """`notify`: incidents are stored and sent. `record`: they are stored only. `off`: there are none."""
    labels: dict[LabelName, str] = Field(default_factory=dict)
    """Labels of these groups in alerts, in the API and in `group_monitor_group_info`: team, service."""
    runbook_url: Link | None = None
    """The runbook that alerts of these groups link to, instead of the rule's own page."""
    thresholds: ThresholdOverrides = Field(default_factory=ThresholdOverrides)  # type: ignore[valid-type]
    """Thresholds of these groups: the keys of `[thresholds]`."""


class _Receiver(Table):
    min_severity: Severity = "warn"
    """The lowest severity that is sent."""


class AlertmanagerReceiver(_Receiver):
    """`[[notify]]` for Alertmanager's v2 API."""

    kind: Literal["alertmanager"]
    """`alertmanager`."""
    urls: Annotated[tuple[HttpUrl, ...], Field(min_length=1)]
    """The addresses of all members of the Alertmanager cluster. Each gets every alert."""
    severity_labels: dict[Severity, Annotated[str, Field(min_length=1, max_length=100)]] = Field(default_factory=dict)
    """Other values of the label `severity`: `{ warn = "warning", page = "critical" }`."""


class WebhookReceiver(_Receiver):
    """`[[notify]]` for anything that takes a POST with the incident as JSON."""

    kind: Literal["webhook"]
    """`webhook`."""
    url: HttpUrl | None = None
    """Where to POST. Either this or `url_file`."""
    url_file: LocalPath | None = None
    """A file that holds the URL, if the URL itself is a secret."""

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("a webhook needs either url or url_file")
        return self

    def address(self) -> str:
        """Return the URL to POST to; never print it. Raises `ConfigError` if the file has none."""
        if self.url_file is None:
            return self.url or ""
        try:
            return _http_url(read_secret(self.url_file).strip())
        except ValueError as error:
            raise ConfigError(f"[[notify]] webhook: url_file: {error}") from None


class PagerDutyReceiver(_Receiver):
    """`[[notify]]` for PagerDuty's Events API v2. The routing key comes from a file or from the environment."""

    kind: Literal["pagerduty"]
    """`pagerduty`."""
    routing_key_file: LocalPath | None = None
    """A file with the routing key of the service's Events API v2 integration. Either this or `routing_key_env`."""
    routing_key_env: str | None = None
    """The environment variable that holds the routing key."""
    url: HttpUrl = "https://events.pagerduty.com"
    """The address of PagerDuty. In the EU: `https://events.eu.pagerduty.com`."""

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if (self.routing_key_file is None) == (self.routing_key_env is None):
            raise ValueError("pagerduty needs either routing_key_file or routing_key_env")
        return self

    def routing_key(self) -> str:
        """Return the key; never print it. Raises `ConfigError` if there is none."""
        if self.routing_key_file is None:
            key = os.environ.get(self.routing_key_env or "", "").strip()
            if not key:
                raise ConfigError(f"[[notify]] pagerduty: no routing key: {self.routing_key_env} is unset or empty")
            return key
        try:
            return read_secret(self.routing_key_file).strip()
        except ValueError as error:
            raise ConfigError(f"[[notify]] pagerduty: no routing key: {error}") from None


class LogReceiver(_Receiver):
    """`[[notify]]` that writes alerts to the log of `serve`."""

    kind: Literal["log"]
    """`log`."""


Receiver = Annotated[
    AlertmanagerReceiver | PagerDutyReceiver | WebhookReceiver | LogReceiver, Field(discriminator="kind")
]
RECEIVERS: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(get_args(Receiver)[0])
}
"""By kind."""


class Policy(NamedTuple):
    """What the configuration says about one group."""

    mode: Mode
    labels: Mapping[str, str]
    runbook_url: str | None
    thresholds: Thresholds


class Settings(Table):
    """The whole configuration; `Settings()` is all defaults."""

    cluster: Annotated[str, Field(min_length=1, max_length=255)] = "default"
    """The name of the Kafka cluster in alerts, metrics and the store; every `run` of one store has its own."""
    kafka: Kafka = Kafka()
    """How to reach the brokers."""
    run: Run = Run()
    """The Spark job."""
    store: StoreSettings = StoreSettings()
    """The database."""
    serve: Serve = Serve()
    """The HTTP side."""
    quality: Quality = Quality()
    """Checks of the data."""
    thresholds: ThresholdOverrides = Field(default_factory=ThresholdOverrides)  # type: ignore[valid-type]
    """What separates late from lost, for all groups."""
    groups: tuple[GroupBlock, ...] = ()
    """What is different for some groups."""
    notify: tuple[Receiver, ...] = ()
    """Who is told."""

    def default_thresholds(self) -> Thresholds:
        """Return the thresholds of a group that no `[[groups]]` block matches."""
        return _overridden(Thresholds(), self.thresholds)

    def group_thresholds(self) -> GroupThresholds:
        """Return the thresholds of the blocks in order: the first whose pattern matches a whole group id counts."""
        base = self.default_thresholds()
        return GroupThresholds(self._patterns(), tuple(_overridden(base, block.thresholds) for block in self.groups))

    def history_ms(self) -> int:
        """Return how far back rules look at a group's past."""
        known = (self.default_thresholds(), *self.group_thresholds().thresholds)
        return max(max(each.storm_window_ms, each.recurrence_window_ms) for each in known)

    def policy_for(self, group: str) -> Policy:
        """Find the policy of a group id; the empty id (broker-level findings) always notifies."""
        base = self.default_thresholds()
        number = group_patterns(self._patterns()).first(group) if group else None
        if number is None:
            return Policy("notify", {}, None, base)
        block = self.groups[number]
        return Policy(block.mode, block.labels, block.runbook_url, _overridden(base, block.thresholds))

    def _patterns(self) -> tuple[str, ...]:
        return tuple(block.pattern for block in self.groups)

    def effective(self) -> str:
        """Return the settings formatted like TOML, with secrets and URL credentials masked, for the start-up log."""
        return "\n".join(as_toml(self.model_dump(mode="json", exclude_none=True)))


def load(path: Path | None) -> Settings:
    """Read a file, add environment and secrets, and validate; raises `ConfigError`. None: no file, all defaults."""
    try:
        text = "" if path is None else path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    path = path or Path("defaults")
    raw = parse_toml(path, text)
    problems = Problems(path, key_lines(text))
    secrets = (f"{ENVIRONMENT_PREFIX}{name}".upper() for name in Secrets.model_fields)
    require_text(os.environ, {*variables_of(Settings), *secrets}, problems)
    _refuse_secrets(raw, problems)
    add_environment(raw, Settings, os.environ, problems)
    _add_secrets(raw, problems)  # last, because the environment may name their files
    try:
        # JSON mode is strict about scalars and still takes an array for a tuple and a string for a path.
        settings = Settings.model_validate_json(json.dumps(raw, default=str))
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            _add_problem(detail, raw, problems)
    except ValueError as error:  # a hexadecimal number of thousands of digits
        raise ConfigError(f"{path}: a number that cannot be read: {error}") from None
    if problems:
        problems.stop()
    return settings


SECRET_KEYS = {
    ("kafka", "sasl_password"): "kafka_sasl_password",
    ("kafka", "ssl_key_password"): "kafka_ssl_key_password",
    ("run", "spark_secret"): "run_spark_secret",
    ("store", "password"): "store_password",
    ("serve", "token"): "serve_token",
}


def _refuse_secrets(raw: Mapping[str, Any], problems: Problems) -> None:
    """Refuse secrets in the file itself."""
    for (table, key), name in SECRET_KEYS.items():
        section = raw.get(table)
        if isinstance(section, dict) and key in section:
            advice = f"set {ENVIRONMENT_PREFIX}{name.upper()} or {key}_file"
            problems.add((table, key), f"[{table}] {key}: secrets do not belong in this file; {advice}")


def _add_secrets(raw: dict[str, Any], problems: Problems) -> None:
    """Add secrets from files and environment (which takes precedence) to `raw`."""
    secrets = Secrets()
    for (table, key), name in SECRET_KEYS.items():
        section = raw.get(table, {})
        if not isinstance(section, dict):
            continue
        value = revealed(getattr(secrets, name))
        if value is not None and not value.strip():
            problems.add_variable(f"{ENVIRONMENT_PREFIX}{name.upper()}", IS_EMPTY)
        if value is None and key not in section and isinstance(file := section.get(f"{key}_file"), str):
            try:
                value = read_secret(Path(file))
            except ValueError as error:
                problems.add((table, f"{key}_file"), f"[{table}] {key}_file: {error}")
                value = "unreadable"  # the problem has been reported already
        if value is not None:
            raw.setdefault(table, section)[key] = value


TABLES: dict[str, type[BaseModel]] = {
    "": Settings,
    "kafka": Kafka,
    "run": Run,
    "store": StoreSettings,
    "serve": Serve,
    "quality": Quality,
    "thresholds": ThresholdOverrides,
    "groups": GroupBlock,
    **RECEIVERS,
}


def _add_problem(detail: Mapping[str, Any], raw: Mapping[str, Any], problems: Problems) -> None:
    """Record one of pydantic's errors at its place in the file."""
    where: TomlPath = detail["loc"]
    names = [part for part in where if isinstance(part, str)]
    table = next((name for name in reversed(names[:-1]) if name in TABLES), "")
    if where[:1] == ("notify",):  # pydantic adds the receiver's kind to the place
        where = (*where[:2], *where[3:])
    if detail["type"].startswith("union_tag_"):
        where = (*where, "kind")
    if detail["type"] == "extra_forbidden":
        known = {name: set(model.model_fields) for name, model in TABLES.items()}
        hint = did_you_mean(str(where[-1]), known[table], {name: keys for name, keys in known.items() if name})
        problems.add(where, f'unknown key "{where[-1]}" in {f"[{table}]" if table else "the top level"}{hint}')
        return
    problems.add(where, described(detail, where, {} if where in SECRET_KEYS else raw))
