"""Processes that the demo starts. None outlives it: each ends when its stdin ends, whose other end the demo holds."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, Final

STOP_TIMEOUT_S: Final = 20.0
LAST_LINES: Final = 12


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


class Child:
    """A Python module that runs as a process; its output goes to `<folder>/<name>.log`.

    If `listens` is set, its stdout has JSON lines, and `told` holds the newest value of every key in them.
    """

    def __init__(self, name: str, folder: Path, module: str, *arguments: str, listens: bool = False) -> None:
        self.name = name
        self.told: dict[str, Any] = {}
        self._log_path = folder / f"{name}.log"
        with self._log_path.open("ab") as log:
            # In a session of its own: Ctrl-C in the terminal reaches only the demo, which then ends all in order.
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if listens else log,
                stderr=log,
                start_new_session=True,
            )
        if self._process.stdout is not None:
            threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process.poll() is None

    def require_running(self) -> None:
        """Raise `DemoError` with the last lines of its log if the process has ended."""
        if not self.running:
            raise DemoError(f"{self.name} ended with code {self._process.returncode}; it said last:\n{self._tail()}")

    def say(self, line: str) -> None:
        """Write a line to its stdin."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has just ended
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()

    def kill(self) -> None:
        """Send SIGKILL, as an OOM killer would; it has the effect of a lost node, too."""
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        """Send SIGTERM and do not wait."""
        if self.running:
            self._process.terminate()

    def end(self) -> None:
        """Wait for the end of a process that was asked to stop; after a while kill it and all that it has started."""
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _listen(self, lines: IO[bytes]) -> None:
        with contextlib.suppress(ValueError):  # `end` closes the stream
            for line in lines:
                self.told |= json.loads(line)

    def _tail(self) -> str:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line[:300]}" for line in lines[-LAST_LINES:]) or "  nothing"
