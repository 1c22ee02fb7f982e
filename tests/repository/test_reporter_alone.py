"""The reporter goes into other people's applications: it is installed alone and needs kafka-python alone."""

import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import kafka

ROOT = Path(__file__).parents[2]
BUILD = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"
IMPORT = """
import sys
from streaming.reporter import TOPIC, report_polls
print(TOPIC)
loaded = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(*sorted(name for name in loaded if not name.startswith("_")))
"""


def built(folder):
    command = [sys.executable, "-c", BUILD, str(folder)]
    done = subprocess.run(command, cwd=ROOT / "streaming" / "reporter", capture_output=True, text=True, check=True)
    return zipfile.ZipFile(folder / done.stdout.strip())


def test_its_wheel_holds_it_alone_and_asks_for_kafka_python_alone(tmp_path):
    wheel = built(tmp_path)
    code = {path for path in wheel.namelist() if ".dist-info/" not in path}
    assert code == {f"streaming/reporter/{file.name}" for file in (ROOT / "streaming" / "reporter").glob("*.py")}
    [metadata] = [wheel.read(path).decode() for path in wheel.namelist() if path.endswith("/METADATA")]
    assert [re.match(r"[\w-]+", need)[0] for need in re.findall(r"(?m)^Requires-Dist: (.*)$", metadata)] == [
        "kafka-python"
    ]


def test_it_is_imported_under_its_name_where_nothing_but_kafka_python_is_installed(tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    [packages] = environment.glob("lib/python*/site-packages")
    built(tmp_path).extractall(packages)
    (packages / "kafka").symlink_to(Path(kafka.__file__).parent)
    done = subprocess.run(
        [environment / "bin" / "python", "-I", "-c", IMPORT], capture_output=True, text=True, check=False
    )
    assert done.stdout.split("\n") == ["group-client-telemetry", "kafka streaming", ""], done.stderr
