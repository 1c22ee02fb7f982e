"""Java, jars, ports and the two files a node is started with."""

import hashlib
import socket
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.embedded import EmbeddedBrokerError, EmbeddedCluster, java, settings
from streaming.embedded.jars import JARS_FOLDER, SUMS_FILE, difference, sums_of
from streaming.embedded.ports import free_ports, require_free


def fake_java(folder, version_line):
    binary = folder / "bin" / "java"
    binary.parent.mkdir()
    binary.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    binary.chmod(0o755)
    return binary


@pytest.mark.parametrize("line", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19 LTS'])
def test_java_home_is_respected(monkeypatch, tmp_path, line):
    binary = fake_java(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.java_command() == str(binary)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11, too old"),
        ('java version "1.8.0_362"', "is Java 8, too old"),
        ("gibberish", "does not say its version"),
    ],
)
def test_an_old_java_is_refused_in_one_line_that_says_what_to_install(monkeypatch, tmp_path, line, complaint):
    fake_java(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(java.JavaMissingError, match=complaint) as refusal:
        java.java_command()
    assert "install Java 17 or newer" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_java_that_cannot_be_run_says_what_to_install(monkeypatch, tmp_path):
    fake_java(tmp_path, "").write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(java.JavaMissingError, match=r"cannot be run.*install Java 17"):
        java.java_command()


def test_no_java_at_all_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(java.JavaMissingError, match="no java on PATH: install Java 17 or newer") as refusal:
        java.java_command()
    assert "apt-get install default-jre-headless)" in str(refusal.value)  # each release of Debian has another openjdk-N


def test_a_changed_a_missing_and_a_foreign_jar_are_all_noticed(monkeypatch, tmp_path):
    for name in ("spark/a-1.jar", "broker/b-1.jar"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(name.encode())
    sums = tmp_path / "jars.sha256"
    sums.write_text(sums_of(tmp_path))
    monkeypatch.setattr("streaming.embedded.jars.SUMS_FILE", sums)
    assert difference(tmp_path) == []
    (tmp_path / "spark/a-1.jar").write_bytes(b"changed")
    assert [line.split()[1] for line in difference(tmp_path)] == ["spark/a-1.jar"] * 2
    (tmp_path / "spark/a-1.jar").write_bytes(b"spark/a-1.jar")
    (tmp_path / "broker/c-1.jar").write_bytes(b"foreign")
    assert [line.split()[1] for line in difference(tmp_path)] == ["broker/c-1.jar"]
    (tmp_path / "broker/b-1.jar").unlink()
    assert {line.split()[1] for line in difference(tmp_path)} == {"broker/b-1.jar", "broker/c-1.jar"}


def test_the_sums_are_those_of_sha256sum(tmp_path):
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "a.jar").write_bytes(b"abc")
    assert sums_of(tmp_path) == f"{hashlib.sha256(b'abc').hexdigest()}  spark/a.jar\n"


@pytest.mark.usefixtures("broker_parts")
def test_the_jars_in_place_are_the_committed_ones():
    assert SUMS_FILE.read_text().count("\n") > 40
    assert difference(JARS_FOLDER) == []


def test_a_port_somebody_listens_on_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedBrokerError, match=f"port {port} on 127.0.0.1 is in use"):
            require_free(port)
    assert require_free(port) == port


def test_free_ports_are_different_and_below_the_range_of_outgoing_connections():
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert max(ports) < 32_768


def test_the_snippet_in_the_repository_is_what_the_command_prints():
    command = ["log4j2", "--alone", "--key", "broker-1"]
    assert settings.SNIPPET.read_text() == CliRunner().invoke(main, command).output, "run `make docs`"


def test_a_folder_that_is_not_ascii_is_the_one_that_kafka_reads():
    """Kafka reads the file by `java.util.Properties.load`, which takes its bytes for ISO 8859-1."""
    ports = {"ports": {1: 9092}, "controller_ports": {1: 9093}}
    text = settings.server_properties(node_id=1, data_folder=Path("/tmp/größe\U0001f600\\x"), overrides={}, **ports)
    assert r"log.dirs=/tmp/gr\u00f6\u00dfe\ud83d\ude00\\x" in text.splitlines()


def test_a_folder_with_a_comma_is_refused(tmp_path):
    """Kafka would take it for two folders."""
    with pytest.raises(EmbeddedBrokerError, match="has to be without commas"), EmbeddedCluster(1, tmp_path / "a,b"):
        pass


def test_no_temporary_folder_with_a_comma_stays(tmp_path, monkeypatch):
    (tmp_path / "a,b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a,b"))
    with pytest.raises(EmbeddedBrokerError, match=r"a,b: set TMPDIR to a folder"), EmbeddedCluster(1):
        pass
    assert list((tmp_path / "a,b").iterdir()) == []
