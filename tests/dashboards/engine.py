"""docker-compose.yml without an engine: its own lines, run in a root file system and a network of their own.

What an engine asks of Linux, root can do by hand: the root is an overlay on this machine's (what is written is in
memory, and gone afterwards), mounts and volumes are bound where the file says, the Dockerfile's lines build the venv,
names stand in /etc/hosts, and since the network is private, ports are the file's own. No registry can be reached, so
images are stood in for by this machine's programs (`STAND_INS`); all services share one file system and its loopback.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from streaming.embedded.jars import broker_class_path
from streaming.embedded.java import java_command
from tests.dashboards.dockerfile import STAGES, instructions
from tests.support.waiting import await_true

ROOT = Path(__file__).parents[2]
SERVICES: Mapping[str, Mapping[str, Any]] = YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"]
START_S = 300
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # an image's

KAFKA = """#!/bin/sh
exec {java} $KAFKA_HEAP_OPTS {options} -cp '{class_path}' {main} "$@"
"""
ADMIN = """#!/venv/run/bin/python
import sys
from kafka.admin import KafkaAdminClient, NewTopic
words = iter(word for word in sys.argv[1:] if word not in ("--create", "--if-not-exists", "--describe"))
given = list(zip(words, words))
options = dict(given)
admin = KafkaAdminClient(bootstrap_servers=options["--bootstrap-server"])
if "--group" in options:
    admin.describe_groups([options["--group"]])
if "--topic" in options:
    configs = dict(value.split("=") for name, value in given if name == "--config")
    admin.create_topics([NewTopic(options["--topic"], int(options["--partitions"]), 1, topic_configs=configs)])
"""
POSTGRES = """#!/bin/bash
set -euo pipefail
bin=$(printf '%s\\n' /usr/lib/postgresql/*/bin | tail -n 1)
as() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }
mkdir -p /run/postgresql && chown postgres /run/postgresql /var/lib/postgresql/data
as "$bin/initdb" -D /var/lib/postgresql/data -E UTF8 -A scram-sha-256 \\
  -U "$POSTGRES_USER" --pwfile "$POSTGRES_PASSWORD_FILE"
as "$bin/postgres" --single -D /var/lib/postgresql/data postgres <<< "CREATE DATABASE $POSTGRES_DB"
exec setpriv --reuid postgres --regid postgres --init-groups "$bin/postgres" -D /var/lib/postgresql/data -c fsync=off
"""
STAND_INS: Mapping[str, Sequence[str]] = {
    "postgres": ["/opt/postgres.sh"],
    "prom/prometheus": [
        "prometheus",
        "--config.file=/etc/prometheus/prometheus.yml",
        "--storage.tsdb.path=/prometheus",
    ],
    "prom/alertmanager": [
        "prometheus-alertmanager",
        "--config.file=/etc/alertmanager/alertmanager.yml",
        "--storage.path=/alertmanager",
        "--cluster.listen-address=",
    ],
}
"""Image -> what its entry point would run."""
USERS: Mapping[str, int] = {"apache/kafka": 1000, "prom/prometheus": 65534, "prom/alertmanager": 65534}
"""Image -> its user; root where it is not here, and the Dockerfile's for the monitor."""
PROGRAMS = (
    "unshare",
    "ip",
    "nsenter",
    "chroot",
    "setpriv",
    "wget",
    "prometheus",
    "prometheus-alertmanager",
    "pg_isready",
)


def missing() -> str | None:
    """Say what is missing, if anything."""
    absent = [program for program in PROGRAMS if not shutil.which(program)]
    if absent:
        return f"not on PATH: {', '.join(absent)}"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "mount", "--make-rprivate", "/"], capture_output=True, check=False
    )
    return None if tried.returncode == 0 else "this user may not make namespaces: be root"


def stop_s(name: str) -> int:
    """How long an engine waits after SIGTERM until it kills a service."""
    return int(SERVICES[name]["stop_grace_period"].removesuffix("s"))


class Image:
    """What an engine takes of an image that the Dockerfile builds."""

    def __init__(self, target: str) -> None:
        assignments = shlex.split(" ".join(instructions(target, "ENV")))
        self.environment = dict(assignment.split("=", 1) for assignment in assignments)
        self.environment["PATH"] = self.environment["PATH"].replace("$PATH", PATH)
        self.user = int(instructions(target, "USER")[-1].split(":")[0])
        self.entry_point: list[str] = json.loads(instructions(target, "ENTRYPOINT")[-1])


OURS = {name: Image(service["build"]["target"]) for name, service in SERVICES.items() if "build" in service}
"""Service -> its image, where it is one of ours."""


class Engine:
    """Holds the namespaces; `folder` is a disk's: a venv is large, and the rest of what is written is in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = folder / "layer" / "root"
        self._running: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "bash", "-euc", self._set_up()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout
        assert self._holder.stdout.readline() == b"ready\n"

    def _set_up(self) -> str:
        layer, root = self._folder / "layer", self._root
        lines = [
            "mount --make-rprivate /",
            "ip link set lo up",
            f"mkdir -p {layer} && mount -t tmpfs layer {layer} && mkdir {layer}/upper {layer}/work {root}",
            f"mount -t overlay overlay -o lowerdir=/,upperdir={layer}/upper,workdir={layer}/work {root}",
            *(f"mount --rbind /{folder} {root}/{folder}" for folder in ("dev", "proc", "sys")),
            f"echo 127.0.0.1 {' '.join(SERVICES)} >> {root}/etc/hosts",
        ]
        for place in ("venv", "src"):
            lines += [
                f"mkdir -p {self._folder}/{place} {root}/{place}",
                f"mount --bind {self._folder}/{place} {root}/{place}",
            ]
        for parent in Path(sys.base_prefix).parents:  # a Python of root's own is nobody else's else
            lines.append(f"chmod o+rx {root}{parent}")
        for name, service in SERVICES.items():
            for volume in service.get("volumes", ()):
                lines += self._mounted(self.user(name), *volume.split(":"))
        return "\n".join([*lines, "echo ready", "read || true"])

    def _mounted(self, user: int, source: str, target: str, mode: str = "rw") -> list[str]:
        inside = f"{self._root}{target}"
        if source.startswith("."):
            make = "mkdir -p" if (ROOT / source).is_dir() else f"mkdir -p {Path(inside).parent} && touch"
            bound = f"{make} {inside} && mount --bind {ROOT / source} {inside} && mount -o remount,bind,ro {inside}"
            return [f"mountpoint -q {inside} || {{ {bound}; }}"]
        volume = self._folder / "volumes" / source
        owned = f"chown {user}:{user} {volume}" if mode == "rw" else "true"
        return [f"mkdir -p {volume} {inside} && {owned}", f"mountpoint -q {inside} || mount --bind {volume} {inside}"]

    def user(self, name: str) -> int:
        """Number of the user that a service runs as."""
        if name in OURS:
            return OURS[name].user
        image = SERVICES[name]["image"]
        if "entrypoint" in SERVICES[name] and image.startswith("postgres"):
            return 0
        return USERS.get(image.rpartition(":")[0], 0)

    def inside(self, *command: str, user: int = 0, network: bool = True) -> list[str]:
        """A command line that runs in the root file system, and in the private network unless told otherwise."""
        entered = ["nsenter", "--target", str(self._holder.pid), "--mount", *(["--net"] if network else [])]
        caged = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--no-new-privs"]
        bounds = ["--bounding-set=-all"] if user else []
        return [*entered, "chroot", str(self._root), *(caged + bounds if user else []), *command]

    def build(self) -> None:
        """Do what the Dockerfile says, but for Debian's packages, which have to be here.

        All stages share one file system, so what one copies from another is there already.
        """
        for name, argument in (instruction for stage in STAGES.values() for instruction in stage.own):
            if name == "COPY" and not argument.startswith("--from"):
                *sources, target = argument.split()
                for source in sources:
                    _copy(ROOT / source, self._folder / "src" / target)
            elif name == "COPY":
                assert len(set(argument.split()[1:])) == 1, argument
            elif name == "RUN":
                self._build_step(argument)
        self.run("umount", "/src")  # the image has it not: whoever needs it finds nothing
        self._stand_in()

    def _build_step(self, script: str) -> None:
        environment = {**os.environ, "PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}"}
        if "apt-get" in script:  # of these only the user that Spark asks the name of
            script = next((part for part in script.split("&&") if "useradd" in part), "true")
        command = self.inside("bash", "-euo", "pipefail", "-c", f"cd /src; {script}", network=False)
        subprocess.run(command, env=environment, check=True)

    def _stand_in(self) -> None:
        """Write the programs of the images that cannot be had."""
        java, class_path = java_command(), broker_class_path()
        options = '"$KAFKA_LOG4J_OPTS"'
        self._program("/opt/kafka/bin/kafka-storage.sh", _kafka(java, "", class_path, "kafka.tools.StorageTool"))
        self._program("/opt/kafka/bin/kafka-server-start.sh", _kafka(java, options, class_path, "kafka.Kafka"))
        for name in ("kafka-topics.sh", "kafka-consumer-groups.sh", "kafka-broker-api-versions.sh"):
            self._program(f"/opt/kafka/bin/{name}", ADMIN)
        self._program("/opt/postgres.sh", POSTGRES)
        self._program("/usr/local/bin/tini", '#!/bin/sh\nshift\nexec "$@"\n')

    def _program(self, path: str, text: str) -> None:
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1" && chmod 755 "$1"'
        subprocess.run(self.inside("bash", "-euc", script, "-", path), input=text.encode(), check=True)

    def run(self, *command: str) -> str:
        """Run something to its end as root; its output."""
        return subprocess.run(self.inside(*command), check=True, stdout=subprocess.PIPE, text=True).stdout

    def up(self, name: str) -> list[subprocess.Popen[bytes]]:
        """Start a service after what it depends on, as it depends on it; returns its processes."""
        for other, how in SERVICES[name].get("depends_on", {}).items():
            if other not in self._running:
                self.up(other)
            if how["condition"] == "service_completed_successfully":
                assert [one.wait(START_S) for one in self._running[other]] == [0], self.log(other)
            else:
                await_true(lambda other=other: self.healthy(other), timeout_s=START_S)
        replicas = SERVICES[name].get("deploy", {}).get("replicas", 1)
        self._running[name] = [self._start(name) for _ in range(replicas)]
        return self._running[name]

    def running(self, name: str) -> list[subprocess.Popen[bytes]]:
        """The processes of a service that was started."""
        return self._running[name]

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        service = SERVICES[name]
        ours = OURS.get(name)
        default = ours.entry_point if ours else STAND_INS.get(service["image"].rpartition(":")[0], ())
        command = [
            word.replace("$$", "$") for word in (*service.get("entrypoint", default), *service.get("command", ()))
        ]
        environment = {
            "PATH": PATH,
            **(ours.environment if ours else {}),
            **service.get("environment", {}),
        }
        if ours:
            command = ["env", "--chdir=/var/lib/group-monitor", "HOME=/var/lib/group-monitor", *command]
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                self.inside(*command, user=self.user(name)),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def healthy(self, name: str) -> bool:
        """Ask a service's own health check, once."""
        assert all(one.poll() is None for one in self._running[name]), self.log(name)
        kind, *test = SERVICES[name]["healthcheck"]["test"]
        test = ["sh", "-c", *test] if kind == "CMD-SHELL" else test
        environment = {"PATH": PATH, **(OURS[name].environment if name in OURS else {})}
        asked = self.inside(*test, user=self.user(name))
        return subprocess.run(asked, env=environment, capture_output=True, check=False).returncode == 0

    def ask(self, url: str) -> Any:
        """Get some JSON from within the network."""
        return json.loads(self.run("wget", "-qO-", url))

    def log(self, name: str) -> str:
        """What a service has written so far."""
        path = self._folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        """End everything that was started, the namespaces with it."""
        for processes in reversed(self._running.values()):
            for one in processes:
                one.terminate()
        for processes in self._running.values():
            for one in processes:
                try:
                    one.wait(30)
                except subprocess.TimeoutExpired:
                    one.kill()
        self._holder.communicate(b"\n")


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """Build the monitor's image as a folder; services are started by `up`."""
    started = Engine(folder)
    try:
        started.build()
        yield started
    finally:
        started.close()


def _kafka(java: str, options: str, class_path: str, main: str) -> str:
    return KAFKA.format(java=java, options=options, class_path=class_path, main=main)


def _copy(source: Path, target: Path) -> None:
    target = target / source.name if target.is_dir() or str(target).endswith(".") else target
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
