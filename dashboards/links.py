"""The links in tables: from a group's name to its dashboard, and to its page in `serve`."""

from collections.abc import Mapping
from typing import Final

from dashboards.panels import UID

GROUP: Final = "group"  # its dashboard's name

_CLUSTER: Final = "${__data.fields.cluster:percentencode}"
_GROUP: Final = "${__data.fields.group:percentencode}"
GROUP_DASHBOARD: Final = (
    f"/d/{UID}{GROUP}?${{datasource:queryparam}}&var-cluster={_CLUSTER}&var-group={_GROUP}&${{__url_time_range}}"
)
GROUP_PAGE: Final = f"${{monitor}}/groups/{_GROUP}?cluster={_CLUSTER}"
GROUP_LINKS: Final[Mapping[str, str]] = {"group": GROUP_DASHBOARD, "cluster": GROUP_PAGE}
"""Column of a table -> URL."""
