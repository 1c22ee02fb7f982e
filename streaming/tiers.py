"""The tiers of data that is read from a cluster, from least to most: the same for `doctor`, `audit` and `serve`."""

from typing import Final

from coordinator_model.decode.telemetry.fields import BadField
from coordinator_model.decode.telemetry.shipped import COORDINATOR_PREFIXES, PREFIX, unwrapped

RECORDS_ONLY: Final = 0
COORDINATOR_LOG: Final = 1
REQUEST_LOG: Final = 2


def tier_of_line(value: bytes | None) -> int:
    """Return the tier that a record of a telemetry topic belongs to; `RECORDS_ONLY` if it is not a line."""
    try:
        line = unwrapped(value or b"")
    except BadField:
        return RECORDS_ONLY
    if PREFIX in line:
        return REQUEST_LOG
    return COORDINATOR_LOG if any(prefix in line for prefix in COORDINATOR_PREFIXES) else RECORDS_ONLY
