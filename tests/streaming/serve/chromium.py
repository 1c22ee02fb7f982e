"""A real browser without a screen: Debian's `chromium`."""

import shutil
import subprocess
import tempfile
from pathlib import Path

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
