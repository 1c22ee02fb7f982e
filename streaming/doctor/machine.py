"""Checks of this machine: whether `run` and `serve` can start here."""

import os
import re
import socket
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from streaming.config.settings import ConfigError, Serve, Settings, StoreSettings
from streaming.doctor.check import Check, Status, fail, ok, warn
from streaming.extras import how_to_install

DISTRIBUTION: Final = "kafka-group-monitor"
OUR_PACKAGES: Final = ("streaming", "coordinator_model", "dashboards")
OLDEST_PYTHON: Final = (3, 11)
PYSPARK_VERSION: Final = "4.2.0"  # older ones fail with today's pyarrow
FIRST_BAD_PANDAS: Final = 3
SPARK_EXTRA: Final = how_to_install("spark")
KAFKA_EXTRA: Final = how_to_install("kafka")
HEALTH_TIMEOUT_S: Final = 2.0


def check_machine() -> Iterator[Check]:
    """Yield the checks that need no configuration."""
    yield check_python()
    yield check_clashes()
    yield check_kafka_python()
    if find_spec("kafka") is not None:
        yield check_java()
    yield check_spark()
    if find_spec("pyspark") is not None and find_spec("kafka") is not None:
        yield check_jars()


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Check:
    """Check the version of Python; Spark's workers use the same interpreter."""
    shown = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        return fail("python", shown, "install Python 3.11 or newer")
    return ok("python", f"{shown} ({sys.executable})")


def check_clashes() -> Check:
    """Check that no other distribution has a package with one of our names: their files would mix."""
    owners = metadata.packages_distributions()
    clashes = {
        f"{package} of {other}"
        for package in OUR_PACKAGES
        for other in owners.get(package, ())
        if other != DISTRIBUTION
    }
    if clashes:
        advice = f"install {DISTRIBUTION} into a virtual environment of its own"
        return fail("packages", f"same names: {', '.join(sorted(clashes))}", advice)
    return ok("packages", "no other distribution uses our names")


def check_kafka_python() -> Check:
    """Check for the Kafka client that everything except Spark's own reader uses."""
    if find_spec("kafka") is None:
        return fail("kafka-python", "not installed", KAFKA_EXTRA)
    return ok("kafka-python", _version("kafka-python"))


def check_java() -> Check:
    """Check for a Java that Spark can run on."""
    from streaming.embedded.java import JavaMissingError, java_command  # noqa: PLC0415 # needs kafka-python

    try:
        return ok("java", java_command())
    except JavaMissingError as error:
        found, _, advice = str(error).partition(": ")
        return fail("java", found, advice)


def check_spark() -> Check:
    """Check the versions of PySpark, pandas and pyarrow."""
    missing = [name for name in ("pyspark", "pandas", "pyarrow") if find_spec(name) is None]
    if missing:
        return fail("spark", f"not installed: {', '.join(missing)}", SPARK_EXTRA)
    versions = f"pyspark {_version('pyspark')}, pandas {_version('pandas')}, pyarrow {_version('pyarrow')}"
    if _version("pyspark") != PYSPARK_VERSION:
        return warn("spark", versions, f"only {PYSPARK_VERSION} is tested: {SPARK_EXTRA}")
    if int(_version("pandas").partition(".")[0]) >= FIRST_BAD_PANDAS:
        return fail("spark", versions, f"PySpark {PYSPARK_VERSION} needs pandas before 3: {SPARK_EXTRA}")
    return ok("spark", versions)


def check_jars() -> Check:
    """Check the jars of Spark's Kafka source."""
    from streaming.run.connector import checked, connector_folder  # noqa: PLC0415
    from streaming.run.errors import RunError  # noqa: PLC0415 # needs PySpark

    folder = connector_folder()
    if not folder.exists():
        return warn("jars", "not here", f"run fetches them into {folder} when it starts, and checks their sums")
    try:
        return ok("jars", f"{len(checked(folder))} in {folder}, sums right")
    except RunError as error:
        found, _, advice = str(error).partition(": ")
        return fail("jars", found, advice)


def check_store(settings: StoreSettings) -> Check:
    """Check that the database can be opened; a SQLite file that does not exist is not created."""
    if find_spec("sqlalchemy") is None:
        return fail("store", "SQLAlchemy is not installed", SPARK_EXTRA)
    if file := re.match(r"sqlite(?:\+\w+)?:///([^?]+)", settings.url):
        path = Path(file[1]).absolute()
        if not os.path.exists(path):  # noqa: PTH110 - `Path.exists` raises PermissionError
            folder = next(parent for parent in path.parents if os.path.exists(parent))  # noqa: PTH110 - as above
            if not os.access(folder, os.W_OK | os.X_OK):
                return fail("store", f"{folder} is not writable", "choose another [store] url")
            return ok("store", f"{path} will be created")
    from streaming.store import StoreError, look  # noqa: PLC0415 # needs SQLAlchemy

    try:
        schema = look(settings.connection_url())
    except StoreError as error:
        return fail("store", str(error), "see [store] in monitor.toml")
    checked = check_schema(schema.found, schema.needed)
    if file and checked.status is Status.OK and (mode := path.stat().st_mode & 0o077):
        return warn("store", f"{checked.found}, others have rights on it ({mode:03o})", f"chmod 600 {path}*")
    return checked


def check_schema(found: str | None, needed: str) -> Check:
    """Compare the database's schema with the one that this version needs. Nothing is migrated here."""
    if found is None:
        return ok("store", f"opens, empty: `run` makes schema {needed}")
    if found == needed:
        return ok("store", f"opens, schema {found}")
    if found > needed:
        advice = "install that version, or choose another [store] url"
        return fail("store", f"schema {found} is of a newer version, this one needs {needed}", advice)
    advice = "back it up and end what still runs in the old version: `run` and `serve` migrate it when they start"
    return warn("store", f"schema {found}, this version needs {needed}", advice)


def check_port(serve: Serve) -> Check:
    """Check that `serve` can listen at its address, or already does."""
    address = serve.address(serve.port)
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(serve.host, serve.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
    except OSError as error:
        if _serves(address):
            return ok("port", f"{address}: `serve` is running")
        advice = "set [serve] host and port, or end what listens there"
        return fail("port", f"{address}: {error.strerror or error}", advice)
    return ok("port", f"{address} is free")


def check_serve(settings: Settings) -> Check:
    """Check the receivers of alerts, the secrets in files, and the certificate."""
    from streaming.serve.needs import check_needs  # noqa: PLC0415 # needs the extra `serve`

    try:
        names = [receiver.name for receiver in check_needs(settings)]
    except ConfigError as error:
        return fail("receivers", str(error), "`serve` does not start without it: correct it")
    return ok("receivers", ", ".join(names) or "none: without [[notify]], `serve` sends no alerts")


def _serves(address: str) -> bool:
    unverified = ssl.create_default_context()  # a certificate need not name the address to listen on; nothing is sent
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    try:
        asked = f"{address}/healthz"
        with urllib.request.urlopen(asked, timeout=HEALTH_TIMEOUT_S, context=unverified) as answer:  # noqa: S310 - http
            return b'"healthy"' in answer.read(1000)
    except (OSError, ValueError, HTTPException):
        return False


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"
