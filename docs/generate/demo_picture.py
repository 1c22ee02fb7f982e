"""The README's picture: the page of a group in the demo, at the moment when a member that stopped polling is reported.

python -m docs.generate.demo_picture docs/images/group.png
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.streaming.serve import chromium

ALERT, PAGE = "poll-exceeded orders", "/groups/orders?minutes=2"
SIZE = (1280, 1500)


def draw(path: Path) -> int:
    """Run `make demo`, show its output, write the picture and return the demo's exit code."""
    base, drawn = "", False
    with subprocess.Popen(["make", "demo"], stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            print(line, end="", flush=True)
            if serve := re.search(r"`serve` at (http://\S+);", line):
                base = serve[1]
            if not drawn and "ALERT" in line and ALERT in line:
                chromium.screenshot(base + PAGE, path, SIZE)
                drawn = True
    return demo.returncode if drawn else 1


if __name__ == "__main__":
    sys.exit(draw(Path(sys.argv[1])))
