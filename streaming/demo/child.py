"""Processes that the demo starts, and that never outlive it: each watches its stdin, whose other end is ours."""

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
    """The demo cannot go on; the text says why."""


class Child:
    """A Python module run as a process; what it says goes to `<folder>/<name>.log`.

    `told` holds the newest value of every key in the JSON lines on its stdout, where `listens` asks for it.
    """

    def __init__(self, name: str, folder: Path, module: str, *arguments: str, listens: bool = False) -> None:
        self.name = name
        self.told: dict[str, Any] = {}
        self._log_path = folder / f"{name}.log"
        with self._log_path.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches the demo only, which then ends all in order.
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
        """Raise `DemoError` with the last lines of its log where it has ended."""
        if not self.running:
            raise DemoError(f"{self.name} ended with code {self._process.returncode}; it said last:\n{self._tail()}")

    def say(self, line: str) -> None:
        """Write a line to its stdin."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has just ended
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL: what an OOM killer or a lost node does."""
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting."""
        if self.running:
            self._process.terminate()

    def end(self) -> None:
        """Wait for the end of a process that was asked to stop; after a while kill it with all it has started."""
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
        with contextlib.suppress(ValueError):  # closed under us at the end
            for line in lines:
                self.told |= json.loads(line)

    def _tail(self) -> str:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line[:300]}" for line in lines[-LAST_LINES:]) or "  nothing"
