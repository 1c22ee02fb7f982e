"""The reporter goes into other people's applications: it is installed alone, and needs only their client."""

import importlib.util
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import confluent_kafka
import kafka
import pytest

ROOT = Path(__file__).parents[2]
REPORTER = ROOT / "streaming" / "reporter"
AT_START = """
import sys
at_start = set(sys.modules)  # Debian's Python imports a sitecustomize
"""
SEEN = """
loaded = {name.partition(".")[0] for name in sys.modules.keys() - at_start} - sys.stdlib_module_names
print(*sorted(name for name in loaded if not name.startswith("_") and name != "cimpl"))
"""
WITH_KAFKA_PYTHON = """
from kafka import KafkaConsumer
from streaming.reporter import TOPIC, report_polls
from streaming.reporter.reporter import PollReport
consumer = KafkaConsumer.__new__(KafkaConsumer)  # without a broker it cannot be made
consumer._closed, consumer._coordinator = True, None
consumer.config = {"bootstrap_servers": "127.0.0.1:1", "client_id": "c"}
report_polls(consumer).join(10)
print(TOPIC, PollReport.__name__)
"""
WITH_CONFLUENT_KAFKA = """
from streaming.reporter import TOPIC
from streaming.reporter.confluent import Consumer
with Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}) as consumer:
    consumer.subscribe(["t"])
    consumer.poll(0)
    consumer._polls._member_id = "m"
    print(TOPIC, consumer._polls.report()["group"])
"""
FOLDERS = {
    "kafka": [Path(kafka.__file__).parent],
    # A binary wheel keeps its libraries in a folder beside the package.
    "confluent_kafka": [
        Path(confluent_kafka.__file__).parent,
        *Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs"),
    ],
}
NAMED = """
import importlib.resources, json
print(json.loads(importlib.resources.files("streaming.reporter").joinpath("report.schema.json").read_text())["title"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, made as an application's owner makes it who has no network."""
    missing = [name for name in ("pip", "hatchling") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    pip(sys.executable, "wheel", *options, str(REPORTER))
    [made] = folder.glob("*.whl")
    return made


def pip(python, *arguments):
    command = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_reporters_wheel_holds_it_alone(wheel):
    """The clients are extras: it installs none that the application does not have."""
    files = zipfile.ZipFile(wheel)
    code = {path for path in files.namelist() if ".dist-info/" not in path}
    shipped = [*REPORTER.glob("*.py"), REPORTER / "report.schema.json"]
    assert code == {f"streaming/reporter/{file.name}" for file in shipped}
    [metadata] = [files.read(path).decode() for path in files.namelist() if path.endswith("/METADATA")]
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    assert [need.split("; ")[1] for need in needs] == ["extra == 'confluent-kafka'", "extra == 'kafka-python'"]


@pytest.mark.parametrize(
    ("client", "script", "printed"),
    [("kafka", WITH_KAFKA_PYTHON, "PollReport"), ("confluent_kafka", WITH_CONFLUENT_KAFKA, "g")],
    ids=["kafka-python", "confluent-kafka"],
)
def test_it_works_where_nothing_but_one_client_is_installed(wheel, tmp_path, client, script, printed):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    pip(python, "install", "--no-deps", "--no-index", str(wheel))
    [packages] = environment.glob("lib/python*/site-packages")
    for folder in FOLDERS[client]:
        (packages / folder.name).symlink_to(folder)
    done = subprocess.run(
        [python, "-I", "-c", AT_START + script + SEEN + NAMED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [
        f"group-client-telemetry {printed}",
        f"{client} streaming",
        "A consumer's report of its last poll, format version 1",
    ], done.stderr
