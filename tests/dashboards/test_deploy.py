"""docker-compose.yml, the Dockerfile and the files they mount, as far as they can be checked without an engine."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import requests
from ruamel.yaml import YAML

from dashboards import files
from dashboards.rules import GRAFANA_DATASOURCE, grafana_rules
from streaming.config import load
from streaming.embedded.settings import SNIPPET, TELEMETRY_TOPIC
from streaming.reporter import TOPIC as CLIENT_TELEMETRY_TOPIC

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = YAML(typ="safe").load(ROOT / "docker-compose.yml")
SERVICES = COMPOSE["services"]
ONE_SHOT = {"secrets", "topics"}
SAMPLES = {name for name, service in SERVICES.items() if "sample" in service.get("profiles", ())}
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
PROVISIONING = DEPLOY / "grafana" / "provisioning"
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
AMTOOL = shutil.which("amtool")
PROMTOOL = shutil.which("promtool")


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


def test_secrets_are_made_once_and_kept(tmp_path):
    script = SERVICES["secrets"]["command"][0].replace("$$", "$").replace("/run/group-monitor-secrets", str(tmp_path))
    ran("bash", "-euc", script)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made.keys() == {"postgres", "grafana"}
    assert len(set(made.values())) == 2
    assert all(len(secret.strip()) == 32 for secret in made.values())
    ran("bash", "-euc", script)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == made


def test_the_broker_ships_its_telemetry_into_topics_that_exist_first():
    topics = SERVICES["topics"]["command"][0]
    assert f"create {TELEMETRY_TOPIC} --" in topics
    assert f"create {CLIENT_TELEMETRY_TOPIC} --partitions 3 --config message.timestamp.type=LogAppendTime" in topics
    assert f"./{SNIPPET.relative_to(ROOT)}:/etc/group-monitor/log4j2.yaml:ro" in SERVICES["kafka"]["volumes"]
    assert "topics" in SERVICES["run"]["depends_on"]


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
    (policy,) = yaml(PROVISIONING / "alerting" / "policies.yml")["policies"]
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
        ("alertname=ConsumerGroupRebalanceStorm severity=page cluster=prod group=orders", "nobody"),
        ("alertname=rebalance-storm severity=page cluster=prod group=orders incident=abc", "on-call"),
    ],
)
def test_alertmanager_routes(labels, receiver):
    config = str(DEPLOY / "alertmanager" / "alertmanager.yml")
    ran(AMTOOL, "check-config", config)
    ran(
        AMTOOL, "config", "routes", "test", f"--config.file={config}", f"--verify.receivers={receiver}", *labels.split()
    )


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH (Debian: prometheus)")
def test_prometheus_takes_its_configuration(tmp_path):
    mounted = dict(volume.split(":")[:2] for volume in SERVICES["prometheus"]["volumes"])
    for source, target in mounted.items():
        if source.startswith("."):
            shutil.copy(ROOT / source, tmp_path / Path(target).name)
    ran(PROMTOOL, "check", "config", str(tmp_path / "prometheus.yml"))


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is neither in the venv (make setup) nor on PATH")
def test_hadolint_finds_nothing_in_the_dockerfile():
    ran(HADOLINT, str(DEPLOY / "Dockerfile"))


def test_the_image_runs_as_nobody_special_from_pinned_parts():
    instructions = re.findall(r"(?m)^([A-Z]+) (.+)$", DOCKERFILE)
    final = instructions[max(place for place, (name, _) in enumerate(instructions) if name == "FROM") :]
    assert [value for name, value in final if name == "USER"] == ["10001:10001"]
    assert all(re.match(r"python:\d+\.\d+\.\d+-", value) for name, value in instructions if name == "FROM")
    assert ("ENTRYPOINT", '["tini", "--", "group-monitor"]') in final
    assert "--require-hashes" in DOCKERFILE


@pytest.fixture
def installed(tmp_path):
    """The wheel in a venv of its own, beside the packages of the lock: what the image holds."""
    build = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"
    wheel = tmp_path / ran(sys.executable, "-c", build, str(tmp_path)).splitlines()[-1]
    ran(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    ran(str(tmp_path / "venv" / "bin" / "pip"), "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    packages = sysconfig.get_path("purelib")  # on PYTHONPATH its .pth files do not count, so this tree is not there
    return tmp_path / "venv" / "bin" / "group-monitor", {**os.environ, "PYTHONPATH": packages}


def test_the_images_command_serves_from_the_wheel_alone(installed, tmp_path):
    command, environment = installed
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
    serve = subprocess.Popen([command, *arguments], env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        events = (json.loads(line) for line in serve.stderr if line.startswith("{"))
        url = next(event["url"] for event in events if event["event"] == "listening")
        assert requests.get(f"{url}/healthz", timeout=10).status_code == 200
        assert "<html" in requests.get(f"{url}/", timeout=10).text
    finally:
        serve.terminate()
        serve.communicate(timeout=30)
    assert serve.returncode == 0


def test_the_image_is_built_from_files_that_are_there_and_sent():
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for copied in re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", DOCKERFILE):
        for source in copied.split():
            assert (ROOT / source).exists()
            assert source in sent
