"""The rendered files that the package ships."""

import json
from pathlib import Path
from typing import Any, Final

RENDERED: Final = Path(__file__).with_name("rendered")
TAG: Final = "group-monitor"
FOLDER: Final = "Group monitor"
"""The folder of dashboards and alert rules in Grafana."""
PUBLIC_URL: Final = "http://127.0.0.1:8844"
"""The address of `serve` unless `[serve] public_url` is set."""


def dashboards(folder: Path = RENDERED, monitor: str = PUBLIC_URL) -> dict[str, dict[str, Any]]:
    """Return the model of every rendered dashboard by its uid; it links to `serve` at the address `monitor`."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json")))
    models = (json.loads(text.replace(PUBLIC_URL, monitor)) for text in texts)
    return {model["uid"]: model for model in models}
