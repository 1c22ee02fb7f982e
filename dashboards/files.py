"""The rendered files, as the package ships them."""

import json
from pathlib import Path
from typing import Any, Final

RENDERED: Final = Path(__file__).with_name("rendered")
TAG: Final = "group-monitor"
FOLDER: Final = "Group monitor"
"""Where dashboards and alert rules lie in Grafana."""
PUBLIC_URL: Final = "http://127.0.0.1:8844"
"""Where people find `serve`, unless somebody says otherwise (`[serve] public_url`)."""


def dashboards(folder: Path = RENDERED) -> dict[str, dict[str, Any]]:
    """Dashboard uid -> its model, of every rendered dashboard."""
    models = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json")))
    return {model["uid"]: model for model in models}
