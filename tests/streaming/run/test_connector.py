"""Spark's Kafka source: fetched where it is missing, and never taken unless its sums are the committed ones."""

import shutil

import pytest

from streaming.embedded.fetch import IVY_FOLDER
from streaming.embedded.jars import JARS_FOLDER
from streaming.run import connector
from streaming.run.errors import RunError
from tests.support.parts import skip_without_broker


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """An installation that is no checkout; what Ivy downloads is there already, as from a repository."""
    skip_without_broker()
    monkeypatch.delenv(connector.JARS_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(connector, "JARS_FOLDER", tmp_path / "no-checkout")
    shutil.copytree(IVY_FOLDER, tmp_path / "kafka-group-monitor" / "ivy")
    return tmp_path / "kafka-group-monitor"


def named(jars):
    return [jar.name for jar in jars]


def ours():
    return sorted(jar.name for jar in (JARS_FOLDER / "spark").glob("*.jar"))


def test_outside_a_checkout_the_jars_are_fetched_once_and_checked(elsewhere):
    jars = connector.connector_jars()
    assert named(jars) == ours()
    assert {jar.parent for jar in jars} == {elsewhere / "connector"}
    shutil.rmtree(elsewhere / "ivy")  # a second fetch would fill it again
    assert connector.connector_jars() == jars
    assert not (elsewhere / "ivy").exists()


def test_what_a_repository_changed_is_refused_and_not_kept(elsewhere):
    [jar] = elsewhere.glob("ivy/**/spark-sql-kafka-*.jar")
    jar.write_bytes(jar.read_bytes() + b"more")
    with pytest.raises(RunError, match=r"(?s)not the ones of jars.sha256:.*spark-sql-kafka.*set GROUP_MONITOR_JARS"):
        connector.connector_jars()
    assert list(elsewhere.iterdir()) == [elsewhere / "ivy"]


def test_a_jar_that_was_changed_later_is_refused_with_what_to_do(elsewhere):
    changed = connector.connector_jars()[0]
    changed.write_bytes(b"something else")
    with pytest.raises(RunError) as refused:
        connector.connector_jars()
    advice = f"remove {changed.parent}, then run fetches it again"
    assert str(refused.value) == f"{changed} is not the jar of jars.sha256: {advice}"


def test_jars_of_a_folder_that_was_named_are_checked_and_never_fetched(elsewhere, monkeypatch, tmp_path):
    monkeypatch.setenv(connector.JARS_VARIABLE, str(tmp_path / "named"))
    with pytest.raises(RunError, match=r"named lacks commons-pool2-.*\.jar: GROUP_MONITOR_JARS has to name a copy of"):
        connector.connector_jars()
    shutil.copytree(JARS_FOLDER / "spark", tmp_path / "named")
    (tmp_path / "named" / "zz-authentication-of-a-cloud.jar").write_bytes(b"an operator's own")
    assert named(connector.connector_jars()) == [*ours(), "zz-authentication-of-a-cloud.jar"]
    assert not (elsewhere / "connector").exists()
