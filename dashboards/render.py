"""Renders dashboards and alert rules to `rendered/`. It is committed, so that Grafana and a review need no Python.

This module needs the development packages (grafana-foundation-sdk, ruamel.yaml); `publish` needs only rendered files.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from ruamel.yaml import YAML

from dashboards import fleet, group, health, rebalances, rules
from dashboards.files import PUBLIC_URL, RENDERED

SCHEMA_VERSION: Final = 38
"""That of Grafana 10.0. A newer Grafana migrates it on load (13: to 42 or 43), but none can read a newer version."""
MADE_BY: Final = "# Made by `group-monitor dashboards render` from dashboards/rules.py: change that, not this.\n"


def rendered(
    severity_labels: Mapping[str, str] = rules.SAME, monitor: str = PUBLIC_URL, rules_url: str | None = None
) -> dict[str, str]:
    """Return the text of each file in `rendered/` by its name.

    `severity_labels` rename severities of alert rules. Links lead to `serve` at the address `monitor`; those of alert
    rules to `<rules_url>/<rule>.md`, if that is given.
    """
    runbooks = f"{rules_url}/{{rule}}.md" if rules_url else f"{monitor}/rules/{{rule}}"
    boards = {"fleet": fleet, "group": group, "rebalances": rebalances, "health": health}
    return {
        **{
            f"{name}.json": dashboard_json(module.build()).replace(PUBLIC_URL, monitor)
            for name, module in boards.items()
        },
        "prometheus-rules.yml": yaml_text(rules.prometheus_rules(severity_labels, runbooks)),
        "grafana-rules.yml": yaml_text(rules.grafana_rules(severity_labels, runbooks)),
    }


def write(folder: Path = RENDERED, texts: Mapping[str, str] | None = None) -> list[Path]:
    """Write every file that is missing or differs; return the paths of all files that changed.

    Files that are no longer made are removed from `RENDERED` only: another folder may hold files of somebody else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = rendered() if texts is None else texts
    ours = folder.resolve() == RENDERED.resolve()
    touched = [path for path in sorted(folder.iterdir()) if path.name not in wanted] if ours else []
    for path in touched:
        path.unlink()
    for name, text in wanted.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            _write(path, text)
            touched.append(path)
    return touched


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        error.filename = str(path)  # only an error of `open` names it
        raise


def dashboard_json(builder: Dashboard) -> str:
    """Encode a dashboard with sorted keys, so that a difference shows what changed."""
    model: dict[str, Any] = json.loads(JSONEncoder().encode(builder.build()))
    model["schemaVersion"] = SCHEMA_VERSION
    for shown_on_top in (*model["annotations"]["list"], *model["links"]):
        del shown_on_top["placement"]  # the SDK's default hides them in a menu that only the newest Grafana has
    return json.dumps(model, indent=2, sort_keys=True) + "\n"


def yaml_text(value: Mapping[str, Any]) -> str:
    """Encode a mapping as YAML, in its own order."""
    yaml = YAML()
    yaml.width = 1_000  # a folded line would end in a space
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(value, out)
    return MADE_BY + out.getvalue()
