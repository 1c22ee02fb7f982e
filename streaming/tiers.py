"""What is read of a cluster's brokers, from least to most: `doctor` and `serve` name the same tiers."""

from typing import Final

RECORDS_ONLY: Final = 0
COORDINATOR_LOG: Final = 1
REQUEST_LOG: Final = 2
