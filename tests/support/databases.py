"""A real PostgreSQL server for a test session, if its programs and a driver are installed."""

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, NullPool, create_engine, text


def program(name: str) -> str | None:
    """Find one of PostgreSQL's programs; Debian keeps them off PATH."""
    return shutil.which(name) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)


def missing() -> str | None:
    """Return what is missing for `postgresql`, if anything."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    if program("initdb") is None or program("pg_ctl") is None:
        return "initdb and pg_ctl are neither on PATH nor where Debian puts them"
    if os.geteuid() == 0 and "postgres" not in {entry.pw_name for entry in pwd.getpwall()}:
        return "PostgreSQL does not run as root and there is no user postgres"
    return None


class Postgres:
    """A server that can be stopped hard and started again."""

    def __init__(self, folder: str, port: int) -> None:
        self.url = f"postgresql+psycopg://monitor@127.0.0.1:{port}/postgres"
        self.folder = Path(folder)
        self._user = "postgres" if os.geteuid() == 0 else None
        self._options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        self._data = Path(folder, "data")
        if self._user:
            shutil.chown(folder, self._user)
        self._run("initdb", "-D", self._data, "-A", "trust", "-U", "monitor", "-E", "UTF8", "--locale=C")

    def start(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "-l", f"{self.folder}/log", "-o", self._options, "start")

    def stop(self) -> None:
        """Stop it as if it had been killed."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def refuse_writes(self) -> None:
        """Refuse all writes from the next transaction on, as a standby does, or a provider whose disk is full."""
        self._configure("ALTER SYSTEM SET default_transaction_read_only = on")

    def take_writes(self) -> None:
        self._configure("ALTER SYSTEM RESET default_transaction_read_only")

    def _configure(self, change: str) -> None:
        engine = create_engine(self.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text("SET default_transaction_read_only = off"))
            connection.execute(text(change))
            connection.execute(text("SELECT pg_reload_conf()"))

    def _run(self, name: str, *arguments: object) -> None:
        command = [program(name), *map(str, arguments)]
        subprocess.run(command, check=True, user=self._user, cwd=self.folder, stdout=subprocess.DEVNULL)


@contextmanager
def server() -> Iterator[Postgres]:
    """Start a server on a free port; remove it and its files afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="group-monitor-pg-") as folder:
        started = Postgres(folder, port)
        started.start()
        try:
            yield started
        finally:
            started.stop()


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a server and yield its URL."""
    with server() as started:
        yield started.url


def empty(engine: Engine) -> None:
    """Empty a PostgreSQL database."""
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
