"""rsyslog with its module for Kafka, run with the configuration that is shipped."""

import contextlib
import shutil
import subprocess
from pathlib import Path

CONFIG = Path(__file__).parents[3] / "deploy" / "shippers" / "rsyslog.conf"
FILE = "/var/log/kafka/group-telemetry.log"
SPOOL = "/var/spool/rsyslog"


def program():
    """Return rsyslogd, if it is there with its module for Kafka (Debian: rsyslog-kafka)."""
    found = shutil.which("rsyslogd") or shutil.which("/usr/sbin/rsyslogd")
    return found if found and modules(found) else None


def modules(program):
    """The folder of rsyslog's modules, if the one for Kafka is there."""
    found = Path(program).resolve().parents[2].glob("usr/lib/*/rsyslog/omkafka.so")
    return next((module.parent for module in found), None)


@contextlib.contextmanager
def shipping(program, folder, servers, file):
    """Run rsyslog, with the shipped configuration moved into a folder."""
    text = CONFIG.read_text()
    for ours, theirs in ((FILE, str(file)), (SPOOL, str(folder)), ("127.0.0.1:9092", servers)):
        assert ours in text
        text = text.replace(ours, theirs)
    config = folder / "rsyslog.conf"
    config.write_text(text)
    command = [program, "-n", "-f", str(config), "-i", str(folder / "pid"), "-M", str(modules(program))]
    with (folder / "rsyslog.out").open("a") as out, subprocess.Popen(command, stdout=out, stderr=out) as shipper:
        try:
            yield shipper
        finally:
            shipper.terminate()
            shipper.wait(30)
