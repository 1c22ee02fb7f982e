"""A real browser without a screen: Debian's `chromium`."""

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tests.support.waiting import PATIENCE_S

PROGRAM = "chromium"
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip


def missing() -> str | None:
    """Say what is missing, if anything."""
    return None if shutil.which(PROGRAM) else f"{PROGRAM} is not on PATH"


def _run(url: str, *options: str) -> str:
    with tempfile.TemporaryDirectory(prefix="group-monitor-chromium-") as profile:
        done = subprocess.run(
            [PROGRAM, *_OPTIONS, f"--user-data-dir={profile}", *options, url],
            capture_output=True, text=True, timeout=90, check=True,
        )  # fmt: skip
    return done.stdout


def dom(url: str, *, runs_ms: int = 500) -> str:
    """The page as the browser has it after `runs_ms` of its own time."""
    return _run(url, "--dump-dom", f"--virtual-time-budget={runs_ms}")


def screenshot(url: str, path: Path, size: tuple[int, int] = (1280, 1500)) -> bytes:
    """A picture of the page, so many pixels wide and high."""
    width, height = size
    _run(url, f"--screenshot={path}", f"--window-size={width},{height}", "--virtual-time-budget=500")
    return path.read_bytes()


class Tab:
    """A page that stays open: scripts run in it, over the DevTools protocol (NUL-terminated JSON on two pipes)."""

    def __init__(self, commands: BinaryIO, answers: BinaryIO) -> None:
        self._commands, self._answers, self._numbers, self._session = commands, answers, itertools.count(1), None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def open(self, url: str, width: int = 1_280, height: int = 900) -> None:
        """Load a page in a window of this size, completely."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._call("Page.navigate", url=url)
        self.run("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")

    def run(self, script: str) -> Any:
        """Evaluate an expression; a promise is awaited."""
        done = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait_until(self, condition: str) -> None:
        """Wait for a change of the document that makes an expression true."""
        self.run(
            f"new Promise(done => {{ const ready = () => ({condition}) && done();"
            "new MutationObserver(ready).observe(document, {subtree: true, childList: true, characterData: true});"
            "ready(); })"
        )

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _message(self) -> bytes:
        said = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser ended"
            said += byte
        return bytes(said)


@contextmanager
def tab() -> Iterator[Tab]:
    """Start a browser with one page; it is gone afterwards."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(prefix="group-monitor-chromium-", ignore_cleanup_errors=True) as profile:
        script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'  # the two that Chromium speaks on
        options = [*_OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", PROGRAM, *options],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        with open(ours_out, "wb") as commands, open(ours_in, "rb") as answers:  # noqa: PTH123 - descriptors
            yield Tab(commands, answers)
            process.terminate()
            process.wait(PATIENCE_S)
