"""`group-monitor log4j2`: one file for all brokers, in both formats, on the real broker."""

import re
import socket

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from coordinator_model.decode.telemetry.request_log import REFUSED_COMMITS
from streaming.cli import main
from streaming.embedded import TELEMETRY_TOPIC, EmbeddedCluster, ask, readiness
from streaming.embedded.cluster import REQUEST_LOGGER
from streaming.embedded.ports import free_ports
from streaming.log4j2 import COORDINATOR_LOGGERS, REFUSED_COMMIT
from tests.support.kafka_io import read_until
from tests.support.request_log import heartbeat_line, line
from tests.support.secured import PASSWORD, USER, secured_broker

STOCK = """
Configuration:
  Appenders:
    Console:
      name: STDOUT
      PatternLayout: {{pattern: "[%d{{ISO8601}}] %p %m (%c)%n"}}
    RollingFile:
      - name: RequestAppender
        fileName: "{folder}/kafka-request.log"
        filePattern: "{folder}/kafka-request.log.%d{{yyyy-MM-dd-HH}}"
        PatternLayout: {{pattern: "%m%n"}}
        TimeBasedTriggeringPolicy: {{interval: 1}}
  Loggers:
    Root: {{level: INFO, AppenderRef: [{{ref: STDOUT}}]}}
    Logger:
      - {{name: kafka, level: INFO}}
      - {{name: kafka.request.logger, level: WARN, additivity: false, AppenderRef: {{ref: RequestAppender}}}}
"""
"""As Kafka 4's own config/log4j2.yaml: the request log has a file of its own."""


def printed(*options, code=0):
    result = CliRunner().invoke(main, ["log4j2", *options])
    assert result.exit_code == code, result.output
    return result.output


def flat_yaml(text):
    """What the YAML says: (part, setting) -> value."""
    tree = YAML(typ="safe").load(text)["Configuration"]
    kafka, group, loggers = tree["Appenders"]["Kafka"], tree["Appenders"]["Async"], tree["Loggers"]["Logger"]
    said = {("kafka", k): str(v) for k, v in kafka.items() if isinstance(v, str)}
    said |= {("producer", p["name"]): p["value"] for p in kafka["Property"]}
    said |= {("group", k): str(v) for k, v in group.items() if not isinstance(v, dict | list)}
    said |= {("filter", k): v for k, v in group["RegexFilter"].items()}
    for logger in loggers:
        name = logger.pop("name")
        said |= {(name, k): str(v).lower() for k, v in logger.items() if k != "AppenderRef"}
        said |= {(name, r["ref"]): r.get("level", "") for r in logger["AppenderRef"]}
    return said | {("root", "level"): tree["Loggers"].get("Root", {}).get("level", "")}


def flat_properties(text):
    """What the properties say, likewise."""
    lines = [line.partition(" = ") for line in text.splitlines() if not line.startswith("#")]
    found = {name: value.replace("\\\\", "\\") for name, _, value in lines}

    def under(prefix):
        return {k.removeprefix(prefix): v for k, v in found.items() if k.startswith(prefix)}

    kafka, group = under("appender.groupTelemetryKafka."), under("appender.groupTelemetry.")
    numbers = {key.partition(".")[0] for key in kafka if key.endswith(".value")}
    said = {("kafka", k): v for k, v in kafka.items() if "." not in k and k != "type"}
    said |= {("producer", kafka[f"{n}.name"]): kafka[f"{n}.value"] for n in numbers}
    said |= {("group", k): v for k, v in group.items() if "." not in k and k != "type"}
    said |= {("filter", k.removeprefix("filter.groups.")): v for k, v in group.items() if k.startswith("filter.")}
    said.pop(("filter", "type"))
    for part in sorted({k.split(".")[1] for k in found if k.startswith("logger.")}):
        logger = under(f"logger.{part}.")
        name = logger.pop("name")
        refs = {k.removesuffix(".ref"): v for k, v in logger.items() if k.endswith(".ref")}
        said |= {(name, k): v for k, v in logger.items() if "." not in k}
        said |= {(name, ref): logger.get(f"{key}.level", "") for key, ref in refs.items()}
    return said | {("root", "level"): found.get("rootLogger.level", "")}


OPTIONS = [
    [],
    ["--alone"],
    ["--request-appender", ""],
    ["--refused-commits"],
    ["--tier", "1"],
    ["--tier", "1", "--alone"],
    ["--topic", "t.1", "--key", "${env:POD}", "--bootstrap-servers", "a:1,b:2"],
    ["--property", "security.protocol=SSL", "--property", "linger.ms=5", "--property", 'sasl.jaas.config=a "b\\c";'],
]


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_both_formats_say_the_same(options):
    assert flat_yaml(printed(*options)) == flat_properties(printed("--format", "properties", *options))


REQUEST = {"groupId": "g", "topics": [{"partitions": [{"committedMetadata": '"errorCode":25,'}]}]}


def committed(*errors, api="OFFSET_COMMIT"):
    answers = [{"partitionIndex": n, "errorCode": error} for n, error in enumerate(errors)]
    return line(api, REQUEST, {"throttleTimeMs": 25, "topics": [{"name": "t", "partitions": answers}]})


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (committed(25), True),
        (committed(0, 0, 22), True),
        (committed(82, api="TXN_OFFSET_COMMIT"), True),
        (committed(0, 0), False),
        (committed(27), False),
        (committed(225), False),
        (committed(251), False),
        (committed(25, api="OFFSET_FETCH"), False),
        (heartbeat_line(), True),
        (line("PRODUCE", {}, {"errorCode": 25}), False),
        (line("PRODUCE", {}, {"errorCode": 25}, client='"requestApiKeyName":"OFFSET_COMMIT"'), False),
    ],
)
def test_of_commits_only_the_refused_ones_cost_a_line_and_only_if_asked_for(text, passes):
    """Python reads these expressions as Java does."""
    said = flat_yaml(printed("--refused-commits"))["filter", "regex"]
    assert bool(re.fullmatch(said, text)) is passes
    if "COMMIT" in text:
        assert not re.fullmatch(flat_yaml(printed())["filter", "regex"], text)


def looked_up(error=0, key_type=0, version=4, api="FIND_COORDINATOR"):
    found = {"key": "g", "nodeId": 1, "host": "h", "port": 9092, "errorCode": error}
    old = {"throttleTimeMs": 0, "errorCode": error, "nodeId": 1}
    answer = {"throttleTimeMs": 0, "coordinators": [found]} if version >= 4 else old
    return line(api, {"key": "", "keyType": key_type, "coordinatorKeys": ["g"]}, answer, version=version)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (looked_up(), True),
        (looked_up(version=3), True),
        (looked_up(error=15), False),
        (looked_up(key_type=1), False),
        (looked_up(api="METADATA"), False),
        (committed(25), False),
        (heartbeat_line(), True),
    ],
)
def test_lines_of_coordinator_lookups_are_few_and_optional(text, passes):
    assert bool(re.fullmatch(flat_yaml(printed("--coordinator-lookups"))["filter", "regex"], text)) is passes
    if "FIND" in text:
        assert not re.fullmatch(flat_yaml(printed())["filter", "regex"], text)
        assert not re.fullmatch(flat_yaml(printed("--refused-commits"))["filter", "regex"], text)
    both = flat_yaml(printed("--coordinator-lookups", "--refused-commits"))["filter", "regex"]
    assert bool(re.fullmatch(both, text)) is (passes or "COMMIT" in text)


def test_the_filter_lets_those_errors_through_that_are_read():
    assert f'"errorCode":({"|".join(map(str, sorted(REFUSED_COMMITS)))})' in REFUSED_COMMIT


def test_both_formats_say_the_same_of_a_file_for_a_shipper():
    tree = YAML(typ="safe").load(printed("--file", "/var/log/x.log"))["Configuration"]
    lines = printed("--file", "/var/log/x.log", "--format", "properties").splitlines()
    said = dict(line.split(" = ", 1) for line in lines if not line.startswith("#"))
    rolling = tree["Appenders"]["RollingFile"]
    flat = {name: value for name, value in rolling.items() if isinstance(value, str)}
    flat["layout.pattern"] = rolling["PatternLayout"]["pattern"]
    flat["policy.size"] = rolling["SizeBasedTriggeringPolicy"]["size"]
    flat["strategy.max"] = str(rolling["DefaultRolloverStrategy"]["max"])
    assert flat == {name: said[f"appender.groupTelemetryFile.{name}"] for name in flat}
    assert "Kafka" not in tree["Appenders"]
    assert not [name for name in said if "Kafka" in name]
    [target] = tree["Appenders"]["Async"]["AppenderRef"]
    assert target["ref"] == rolling["name"] == said["appender.groupTelemetry.target.ref"]


def test_the_brokers_own_request_log_stays_quiet():
    """Its appender stays at `warn` beside the broker's own file, and other files do not name it."""
    assert flat_yaml(printed())[REQUEST_LOGGER, "RequestAppender"] == "warn"
    assert (REQUEST_LOGGER, "RequestAppender") not in flat_yaml(printed("--alone"))
    assert (REQUEST_LOGGER, "RequestAppender") not in flat_yaml(printed("--request-appender", ""))


def test_tier_1_ships_the_coordinator_s_lines_and_leaves_the_request_log_as_it_is():
    said = flat_yaml(printed("--tier", "1"))
    assert [part for part, _ in said if part == REQUEST_LOGGER] == []
    for logger in COORDINATOR_LOGGERS:
        assert (said[logger, "level"], said[logger, "GroupTelemetry"]) == ("info", "info")
        assert (logger, "additivity") not in said, "the broker's own log goes on"
    assert {logger for logger, _ in flat_yaml(printed())} > set(COORDINATOR_LOGGERS)


def test_brokers_and_topic_come_from_the_configuration_unless_they_are_given(tmp_path):
    config = tmp_path / "monitor.toml"
    config.write_text('[kafka]\nbootstrap_servers = "a:1"\ntelemetry_topics = ["lines"]\n')
    said = flat_yaml(printed("--config", str(config), "--bootstrap-servers", "b:2"))
    assert (said["producer", "bootstrap.servers"], said["kafka", "topic"]) == ("b:2", "lines")


SECURED = """
[kafka]
bootstrap_servers = "a:1"
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "monitor"
sasl_password_file = "password"
"""


def printed_for_a_secured_cluster(tmp_path, *options):
    (tmp_path / "password").write_text("secret")
    config = tmp_path / "monitor.toml"
    config.write_text(SECURED.replace('"password"', f'"{tmp_path}/password"'))
    result = CliRunner().invoke(main, ["log4j2", "--config", str(config), *options])
    assert result.exit_code == 0
    assert "secret" not in result.output
    return flat_yaml(result.stdout), result.stderr


def test_the_configured_listener_is_used_without_its_login(tmp_path):
    """The producer has the security of the configuration; advice says how to give it the login."""
    said, advice = printed_for_a_secured_cluster(tmp_path)
    assert said["producer", "security.protocol"] == "SASL_SSL"
    assert said["producer", "sasl.mechanism"] == "SCRAM-SHA-512"
    assert ("producer", "sasl.jaas.config") not in said
    assert "KafkaClient { org.apache.kafka.common.security.scram.ScramLoginModule required" in advice
    assert "KAFKA_OPTS=-Djava.security.auth.login.config=" in advice
    assert "ssl.truststore.location" in advice


def test_a_setting_that_is_given_wins_over_the_configuration_s_security(tmp_path):
    said, advice = printed_for_a_secured_cluster(tmp_path, "--property", "sasl.jaas.config=${env:MINE}")
    assert said["producer", "sasl.jaas.config"] == "${env:MINE}"
    assert "KafkaClient" not in advice


def test_another_listener_does_not_take_the_configuration_s_security(tmp_path):
    said, advice = printed_for_a_secured_cluster(tmp_path, "--bootstrap-servers", "b:2")
    assert ("producer", "security.protocol") not in said
    assert not advice


@pytest.mark.parametrize(
    "options",
    [
        ["--bootstrap-servers", "kafka"],
        ["--topic", 'x"y'],
        ["--topic", "a\nb"],
        ["--key", "a\nrootLogger.level = off"],
        ["--property", "acks"],
        ["--property", "acks=all\nrootLogger.level = off"],
        ["--format", "xml"],
        ["--file", "a\nb"],
        ["--file", ""],
        ["--config", "/nowhere/monitor.toml"],
    ],
)
def test_what_would_break_the_file_is_wrong_usage(options):
    printed(*options, code=2)


def lines_of(cluster, client_id, *, key):
    """The telemetry record of a request that we make of the broker, once the broker ships lines under this key."""
    readiness.await_telemetry(cluster.bootstrap_servers, {key: cluster.nodes[0].port})
    ask.list_groups(cluster.nodes[0].port, client_id)
    wanted = f'"clientId":"{client_id}"'.encode()
    records = read_until(
        cluster.bootstrap_servers, TELEMETRY_TOPIC, lambda found: any(wanted in record.value for record in found)
    )
    return [record for record in records if wanted in record.value]


@pytest.mark.e2e
@pytest.mark.usefixtures("broker_parts")
class TestOnABroker:
    def test_yaml_beside_kafkas_own_file_ships_under_the_host_name(self, tmp_path):
        """It adds no line to the broker's other logs, and takes none away."""
        (port,) = free_ports(1)
        files = {
            "log4j2.yaml": STOCK.format(folder=tmp_path),
            "group-telemetry.yaml": printed("--bootstrap-servers", f"127.0.0.1:{port}"),
        }
        with EmbeddedCluster(port=port, telemetry=False, log4j2=files) as cluster:
            records = lines_of(cluster, "asker", key=socket.gethostname())
            assert {record.key for record in records} == {socket.gethostname().encode()}
            log = cluster.node(1).log_path.read_text()
        assert "Completed request" not in log
        assert "[KafkaRaftServer" in log  # what the broker's own file logs, it logs still
        assert (tmp_path / "kafka-request.log").read_text() == ""

    def test_properties_alone_ship_over_sasl_with_a_jaas_file(self, tmp_path, monkeypatch):
        """The key of the lines comes from a variable of the environment."""
        secret = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        monkeypatch.setenv("POD_NAME", "kafka-7")
        jaas = tmp_path / "jaas.conf"
        jaas.write_text(f'KafkaClient {{ {login} required username="{USER}" password="{secret}"; }};')
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={jaas}")

        def files(ports):
            security = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"]
            options = [word for text in security for word in ("--property", text)]
            where = ["--bootstrap-servers", f"127.0.0.1:{ports['SASL_PLAINTEXT']}", "--key", "${env:POD_NAME}"]
            return {"log4j2.properties": printed("--format", "properties", "--alone", *where, *options)}

        with secured_broker(tmp_path, log4j2=files) as secured:
            records = lines_of(secured.cluster, "asker", key="kafka-7")
            assert {record.key for record in records} == {b"kafka-7"}
            log = secured.cluster.node(1).log_path.read_text()
        assert "Completed request" not in log
        assert PASSWORD not in log
