"""docker-compose.yml, the Dockerfile and the files they mount, as far as they can be checked without an engine."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from ruamel.yaml import YAML

from dashboards import files
from dashboards.rules import GRAFANA_DATASOURCE, grafana_rules
from streaming.config.kafka import Kafka
from streaming.config.settings import load
from streaming.embedded.settings import SNIPPET
from streaming.reporter import TOPIC as CLIENT_TELEMETRY_TOPIC
from streaming.serve.server import STOP_S
from streaming.telemetry_topics import TELEMETRY_TOPIC, creation_command
from tests.dashboards import prometheus
from tests.dashboards.dockerfile import STAGES, first_image, instructions, packages_stage
from tests.dashboards.engine import stop_s
from tests.repository.locks import locked
from tests.support.waiting import await_true

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = YAML(typ="safe").load(ROOT / "docker-compose.yml")
SERVICES = COMPOSE["services"]
ONE_SHOT = {"secrets", "topics"}
SAMPLES = {name for name, service in SERVICES.items() if "sample" in service.get("profiles", ())}
TARGETS = sorted({service["build"]["target"] for service in SERVICES.values() if "build" in service})
IMPORTED = {
    "run": [
        "streaming.run.job",
        "streaming.commands.run",
        "streaming.doctor.cluster",
        "streaming.capture.recorder",
        "psycopg",
    ],
    "serve": [
        "streaming.serve.server",
        "streaming.quality.watch",
        "great_expectations",
        "dashboards.publish",
        "psycopg",
    ],
    "sample": ["streaming.demo.consumer", "streaming.reporter", "confluent_kafka", "lz4.frame"],
}
PROVISIONING = DEPLOY / "grafana" / "provisioning"
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
AMTOOL = shutil.which("amtool")
PROMTOOL = shutil.which("promtool")
SYSTEMD = shutil.which("systemd-analyze")


def yaml(path):
    return YAML(typ="safe").load(path)


def ran(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def mounts():
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source, target, *mode = volume.split(":")
            yield name, source, target, mode


def test_the_compose_file_fits_composes_own_schema():
    pytest.importorskip("check_jsonschema")
    ran(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml")


def test_every_image_is_pinned_and_the_same_everywhere():
    tags = {}
    for service in SERVICES.values():
        name, _, tag = service["image"].rpartition(":")
        assert re.fullmatch(r"v?\d+\.\d+[\w.-]*", tag)
        tags.setdefault(name, set()).add(tag)
    assert all(len(found) == 1 for found in tags.values())


def test_every_mount_is_a_file_of_ours_read_only_or_a_named_volume():
    for name, source, _, mode in mounts():
        if source.startswith("."):
            assert (ROOT / source).exists(), (name, source)
            assert mode == ["ro"], (name, source)
        else:
            assert source in COMPOSE["volumes"], (name, source)
    assert {source for _, source, _, _ in mounts() if not source.startswith(".")} == COMPOSE["volumes"].keys()


def test_whoever_needs_a_secret_waits_until_it_is_made_and_nobody_else_may_write_it():
    for name, source, _, mode in mounts():
        if source == "secrets" and name != "secrets":
            assert mode == ["ro"], name
            waits_for = SERVICES[name]["depends_on"]
            assert {"secrets", "postgres"} & waits_for.keys(), name  # postgres waits for secrets itself


def test_no_secret_stands_in_any_file():
    texts = [ROOT / "docker-compose.yml", *(path for path in DEPLOY.rglob("*") if path.is_file())]
    for path in texts:
        for line in path.read_text().splitlines():
            if path.parent.name == "shippers" and re.match(r"\s*(key|key_field)\b", line):
                continue  # of a record: a broker's name
            assigned = re.search(r"(?i)(password|secret|token|key)\w*\s*[:=]\s*(\S+)", line.partition("#")[0])
            value = assigned[2] if assigned else "/run/"
            assert "_file" in line.lower() or "/" in value or value.startswith(("{", "[")), (path.name, line)


def test_every_service_that_stays_says_whether_it_is_well_and_comes_back():
    for name, service in SERVICES.items():
        if name in ONE_SHOT:
            assert service["restart"] == "no"
        else:
            assert service["restart"] == "unless-stopped", name
            assert name in SAMPLES or service["healthcheck"]["test"], name


def test_nothing_is_open_beyond_this_machine():
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_who_waits_waits_for_what_can_come():
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            assert how == {"condition": expected}, name
            assert other in ONE_SHOT or "healthcheck" in SERVICES[other]


def test_the_scripts_are_bash():
    scripts = [s["command"][0] for s in SERVICES.values() if "-euc" in s.get("entrypoint", ())]
    assert len(scripts) == 3
    for script in scripts:
        ran("bash", "-n", "-c", script.replace("$$", "$"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_secrets_are_made_once_and_kept_and_each_has_one_reader(tmp_path):
    script = SERVICES["secrets"]["command"][0].replace("$$", "$").replace("/run/group-monitor-secrets", str(tmp_path))
    ran("bash", "-euc", script)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made.keys() == {"postgres", "postgres-server", "grafana"}
    assert made["postgres"] == made["postgres-server"]
    assert len(set(made.values())) == 2
    rights = {path.name: (path.stat().st_uid, path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert rights == {"postgres": (10001, 0o400), "postgres-server": (999, 0o400), "grafana": (472, 0o400)}
    assert all(len(secret.strip()) == 32 for secret in made.values())
    ran("bash", "-euc", script)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == made


def test_the_broker_ships_its_telemetry_into_topics_that_exist_first():
    created = [line.split() for line in SERVICES["topics"]["command"][0].replace("\\\n", "").splitlines()]
    for topic in (TELEMETRY_TOPIC, CLIENT_TELEMETRY_TOPIC):
        options = creation_command(Kafka(), topic, 1).partition("--topic ")[2].split()
        assert ["create", *options] in created
    assert f"./{SNIPPET.relative_to(ROOT)}:/etc/group-monitor/log4j2.yaml:ro" in SERVICES["kafka"]["volumes"]
    assert "topics" in SERVICES["run"]["depends_on"]


def test_the_broker_alone_loads_its_log4j2_file_and_no_tool_in_its_container(tmp_path):
    """A tool that loaded it would log as the broker into the telemetry topic, at each health check."""
    for name in ("kafka-storage.sh", "kafka-server-start.sh"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name}:$KAFKA_LOG4J_OPTS"\n')
        (tmp_path / name).chmod(0o755)
    script = SERVICES["kafka"]["command"][0].replace("/opt/kafka/bin", str(tmp_path))
    environment = {"PATH": os.environ["PATH"], **SERVICES["kafka"].get("environment", {})}
    told = subprocess.run(["bash", "-euc", script], env=environment, capture_output=True, text=True, check=True).stdout
    option = "-Dlog4j2.configurationFile=/etc/group-monitor/log4j2.yaml"
    assert told.splitlines() == ["kafka-storage.sh:", f"kafka-server-start.sh:{option}"]
    assert not environment.keys() & {"KAFKA_LOG4J_OPTS", "KAFKA_HEAP_OPTS"}


@pytest.mark.parametrize("name", ["run", "serve"])
def test_an_engine_waits_longer_than_the_monitor_takes_to_stop(name):
    """`serve` ends its requests, then its threads, each within `STOP_S`; `run` its batch, then Spark."""
    assert stop_s(name) > 3 * STOP_S


def test_the_sample_consumers_are_told_what_they_ask_for():
    for name in SAMPLES:
        spec = json.loads(SERVICES[name]["command"][0])
        assert f"create {spec['topic']} --" in SERVICES["topics"]["command"][0]


def test_the_monitors_configuration_is_one(tmp_path):
    secret = tmp_path / "postgres"
    secret.write_text("rosebud\n")
    text = (DEPLOY / "monitor.toml").read_text()
    assert "/run/group-monitor-secrets/postgres" in text
    (tmp_path / "monitor.toml").write_text(text.replace("/run/group-monitor-secrets/postgres", str(secret)))
    settings = load(tmp_path / "monitor.toml")
    assert settings.store.connection_url() == "postgresql+psycopg://monitor:rosebud@postgres:5432/monitor"
    hosts = {"kafka", "postgres", "alertmanager"}
    assert hosts <= SERVICES.keys()
    assert settings.kafka.bootstrap_servers == "kafka:9092"
    assert [receiver.kind for receiver in settings.notify] == ["alertmanager", "log"]


def test_grafanas_provisioning_fits_together():
    sources = {source["uid"] for source in yaml(PROVISIONING / "datasources" / "prometheus.yml")["datasources"]}
    assert GRAFANA_DATASOURCE in sources
    asked = {part["datasourceUid"] for rule in grafana_rules()["groups"][0]["rules"] for part in rule["data"]}
    assert asked <= sources | {"__expr__"}
    (provider,) = yaml(PROVISIONING / "dashboards" / "group-monitor.yml")["providers"]
    assert f"./{files.RENDERED.relative_to(ROOT)}:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
    assert provider["folder"] == files.FOLDER == grafana_rules()["groups"][0]["folder"]
    points = {point["name"] for point in yaml(PROVISIONING / "alerting" / "contact-points.yml")["contactPoints"]}
    alerting = yaml(PROVISIONING / "alerting" / "policies.yml")
    (policy,) = alerting["policies"]
    muted = {
        name: route["object_matchers"] for route in policy["routes"] for name in route.get("mute_time_intervals", ())
    }
    (mute,) = alerting["muteTimes"]
    assert muted == {mute["name"]: [["severity", "=", "info"]]}
    assert mute["time_intervals"] == [{"weekdays": ["sunday:saturday"]}]
    assert {policy["receiver"], *(route["receiver"] for route in policy["routes"])} == points


@pytest.mark.skipif(AMTOOL is None, reason="amtool is not on PATH (Debian: prometheus-alertmanager)")
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=session-expired severity=page cluster=prod group=orders incident=abc", "on-call"),
        ("alertname=session-expired severity=warn cluster=prod group=orders incident=abc", "team"),
        ("alertname=GroupMonitorStalled severity=page cluster=prod", "on-call"),
        ("alertname=GroupTelemetryUncovered severity=info cluster=prod", "nobody"),
        ("alertname=ConsumerGroupIncidentPage severity=page cluster=prod group=orders", "nobody"),
        ("alertname=rebalance-storm severity=page cluster=prod group=orders incident=abc", "on-call"),
    ],
)
def test_alertmanager_routes(labels, receiver):
    config = str(DEPLOY / "alertmanager" / "alertmanager.yml")
    ran(AMTOOL, "check-config", config)
    ran(
        AMTOOL, "config", "routes", "test", f"--config.file={config}", f"--verify.receivers={receiver}", *labels.split()
    )


@pytest.mark.skipif(AMTOOL is None, reason="amtool is not on PATH (Debian: prometheus-alertmanager)")
def test_who_deletes_the_first_route_is_alerted_from_metrics(tmp_path):
    config = yaml(DEPLOY / "alertmanager" / "alertmanager.yml")
    assert config["route"]["routes"].pop(0)["matchers"] == ['alertname =~ "ConsumerGroup.+"']
    (tmp_path / "alertmanager.yml").write_text(json.dumps(config))
    route = [AMTOOL, "config", "routes", "test", f"--config.file={tmp_path / 'alertmanager.yml'}"]
    ran(*route, "--verify.receivers=on-call", "alertname=ConsumerGroupIncidentPage", "severity=page")


@pytest.mark.skipif(prometheus.missing() is not None, reason=str(prometheus.missing()))
def test_what_serve_and_prometheus_both_say_is_told_once(tmp_path):
    once = {
        ("monitor-stalled", "one"),
        ("telemetry-stalled", "two"),
        ("GroupMonitorStalled", "serve cannot send"),
        ("GroupTelemetryStalled", "no coordinator"),
    }
    symptoms = {
        ("GroupMonitorStalled", "one"),
        ("GroupMonitorLagOld", "one"),
        ("GroupTelemetryStalled", "two"),
        ("GroupTelemetryStalled", "serve cannot send"),
    }
    alerts = [{"labels": {"alertname": name, "cluster": cluster}} for name, cluster in once | symptoms]
    with prometheus.alertmanager(tmp_path) as url:
        assert requests.post(f"{url}/api/v2/alerts", json=alerts, timeout=10).ok

        def told() -> set[tuple[str, str]]:
            found = requests.get(f"{url}/api/v2/alerts", {"inhibited": "false"}, timeout=10).json()
            return {(alert["labels"]["alertname"], alert["labels"]["cluster"]) for alert in found}

        await_true(lambda: told() == once)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH (Debian: prometheus)")
def test_prometheus_takes_its_configuration(tmp_path):
    mounted = dict(volume.split(":")[:2] for volume in SERVICES["prometheus"]["volumes"])
    for source, target in mounted.items():
        if source.startswith("."):
            shutil.copy(ROOT / source, tmp_path / Path(target).name)
    ran(PROMTOOL, "check", "config", str(tmp_path / "prometheus.yml"))


def units():
    """Name -> keys of the section that says how its process runs."""
    for path in sorted((DEPLOY / "systemd").iterdir()):
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str
        unit.read(path)
        yield path.stem, dict(unit["Service"])


def test_both_systemd_units_have_the_same_folder_and_a_place_for_secrets():
    found = dict(units())
    assert found.keys() == {"group-monitor-run", "group-monitor-serve"}
    for name, service in found.items():
        command = name.removeprefix("group-monitor-")
        assert service["ExecStart"].partition(" ")[2] == f"{command} --config /etc/group-monitor/monitor.toml"
        assert service["EnvironmentFile"] == "-/etc/group-monitor/environment"
        assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}" == "/var/lib/group-monitor"
    assert found["group-monitor-run"]["KillMode"] == "mixed"  # Spark's JVM has to outlive the batch


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not on PATH (Debian: systemd)")
def test_systemd_takes_the_units(tmp_path):
    for path in (DEPLOY / "systemd").iterdir():
        text = path.read_text().replace("/opt/kafka-group-monitor/.venv/bin/group-monitor", "/bin/true")
        (tmp_path / path.name).write_text(text)
    command = [SYSTEMD, "verify", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "group-monitor" in line] == []  # others are the machine's


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is neither in the venv (make setup) nor on PATH")
def test_hadolint_finds_nothing_in_the_dockerfile():
    ran(HADOLINT, str(DEPLOY / "Dockerfile"))


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_nobody_special_from_pinned_parts(target):
    assert instructions(target, "USER")[-1] == "10001:10001"
    assert instructions(target, "ENTRYPOINT") == ['["tini", "--", "group-monitor"]']
    assert re.match(r"python:\d+\.\d+\.\d+-", first_image(target))
    [installs] = [line for line in instructions(packages_stage(target), "RUN") if "--requirement" in line]
    assert "--require-hashes --no-deps" in installs


@pytest.mark.parametrize("target", TARGETS)
def test_only_run_holds_java(target):
    """What is in an image: its own stages', and what it copies of the stage of its packages."""
    assert any("openjdk" in line for line in instructions(target, "RUN")) == (target == "run")
    assert any("openjdk" in line for line in instructions(packages_stage(target), "RUN")) == (target == "run")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"
    return folder / ran(sys.executable, "-c", build, str(folder)).splitlines()[-1]


@pytest.fixture
def image(wheel, tmp_path):
    """A venv with the wheel and the packages of an image's lock, linked from here where all are installed."""

    def installed(target):
        locked(target).link(tmp_path / "packages")
        ran(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
        install = ["-m", "pip", "--python", str(tmp_path / "venv"), "install", "--quiet", "--no-deps", "--no-index"]
        ran(sys.executable, *install, str(wheel))
        # Of a folder on PYTHONPATH the .pth files do not count: this tree, an editable install, is not there.
        return tmp_path / "venv" / "bin", {**os.environ, "PYTHONPATH": str(tmp_path / "packages")}

    return installed


@pytest.mark.parametrize(("target", "modules"), IMPORTED.items(), ids=IMPORTED)
def test_an_image_holds_what_its_commands_import(image, target, modules, tmp_path):
    folder, environment = image(target)
    command = [folder / "python", "-c", f"import {', '.join(modules)}"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_images_command_serves_with_the_packages_of_its_lock_alone(image, tmp_path):
    folder, environment = image("serve")
    text = (DEPLOY / "monitor.toml").read_text()
    for theirs, ours in (
        ("postgresql+psycopg://monitor@postgres:5432/monitor", f"sqlite:///{tmp_path}/monitor.db"),
        ('password_file = "/run/group-monitor-secrets/postgres"', ""),
        ('host = "0.0.0.0"', 'port = 0\nhost = "127.0.0.1"'),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)
    (tmp_path / "monitor.toml").write_text(text)
    arguments = [part.replace("/etc/group-monitor", str(tmp_path)) for part in SERVICES["serve"]["command"]]
    command = [folder / "group-monitor", *arguments]
    serve = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        events = (json.loads(line) for line in serve.stderr if line.startswith("{"))
        url = next(event["url"] for event in events if event["event"] == "listening")
        assert requests.get(f"{url}/healthz", timeout=10).status_code == 200
        assert "<html" in requests.get(f"{url}/", timeout=10).text
        assert "What to do" in requests.get(f"{url}/rules/session-expired", timeout=10).text
    finally:
        serve.terminate()
        serve.communicate(timeout=30)
    assert serve.returncode == 0


def readme_commands(program):
    """The words of each command of README.md's code blocks that begins with `program`."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip().startswith(f"{program} ")]


def test_readme_runs_the_images_that_it_builds_with_their_port_and_data(monkeypatch):
    built = {words[words.index("--tag") + 1] for words in readme_commands("docker build")}
    run, serve = started = readme_commands("docker run")
    for words, command in zip(started, ("run", "serve"), strict=True):
        image, *arguments = words[-4:]
        assert image in built
        assert arguments == [command, "--config", "/etc/group-monitor/monitor.toml"]
    assert "group-monitor:/var/lib/group-monitor" in run
    name, _, value = next(word for word in serve if "=" in word).partition("=")
    monkeypatch.setenv(name, value)
    assert load(None).serve.host == "0.0.0.0"  # noqa: S104 - of its container


def test_the_images_are_built_from_files_that_are_there_and_sent():
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for stage in STAGES.values():
        for copied in (argument for name, argument in stage.own if name == "COPY" and not argument.startswith("--")):
            for source in copied.split()[:-1]:
                assert (ROOT / source).exists()
                assert any((ROOT / source).is_relative_to(ROOT / name) for name in sent), source
