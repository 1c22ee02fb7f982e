"""Spark's network by master. That a local one stays on the loopback is seen where `test_run.py` runs it."""

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from streaming.config.settings import Run
from streaming.embedded.ports import free_ports
from streaming.run.spark_network import network_settings
from tests.streaming.run.listeners import no_stranger_reaches

LOCAL = {"spark.authenticate", "spark.ui.killEnabled", "spark.driver.host", "spark.driver.bindAddress"}
CLUSTER = {"spark.authenticate", "spark.ui.killEnabled", "spark.network.crypto.enabled"}
SECRET = "open sesame"


@pytest.mark.parametrize(
    ("master", "names"),
    [
        ("local", LOCAL),
        ("local[4]", LOCAL),
        ("local[*, 2]", LOCAL),
        ("local-cluster[2,1,1024]", LOCAL),
        ("spark://a:7077,b:7077", CLUSTER),
        ("yarn", CLUSTER),
        ("k8s://https://a:443", CLUSTER),
    ],
)
def test_every_master_authenticates_and_only_those_of_this_machine_stay_on_it(master, names):
    assert network_settings(Run(master=master, spark_secret=SECRET)).keys() == names


@pytest.fixture
def standalone(tmp_path):
    """A master and a worker of Spark with a secret of their own; returns the master's address."""
    home, [port] = Path(pyspark.__file__).parent, free_ports(1)
    properties = tmp_path / "cluster.conf"
    properties.write_text(f"spark.authenticate true\nspark.authenticate.secret {SECRET}\n")
    address, common = f"spark://127.0.0.1:{port}", ("--host", "127.0.0.1", "--properties-file", str(properties))
    environment = os.environ | {"SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_LOCAL_IP": "127.0.0.1"}
    roles = {
        "master.Master": ("--port", str(port), "--webui-port", "0"),
        "worker.Worker": ("--cores", "2", "--memory", "1g", "--webui-port", "0", address),
    }
    with ExitStack() as stack:
        for role, options in roles.items():
            command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{role}", *common, *options]
            process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield address


@pytest.mark.soak
@pytest.mark.spark
def test_on_a_cluster_everybody_has_its_secret(coordinator, monitor, members, standalone, monkeypatch):
    monkeypatch.setenv("GROUP_MONITOR_RUN_SPARK_SECRET", SECRET)
    coordinator.create_telemetry()
    coordinator.record("orders", 3, members, 0)
    watching = monitor(master=standalone)
    watching.wait_for("SELECT 1 FROM groups WHERE members = 3")
    no_stranger_reaches(watching.listeners())
    assert SECRET not in "".join(process.command for process in watching.processes())
