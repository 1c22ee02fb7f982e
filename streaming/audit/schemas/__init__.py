"""Messages of Kafka's protocol that kafka-python does not have, in its own form: ConsumerGroupDescribe (KIP-848)."""

import sys
from typing import Final

from kafka.protocol.api_message import ApiMessage

_HERE: Final = sys.modules[__name__]


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg] # without types
    """Asks a coordinator for groups of the protocol `consumer`."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg] # without types
    """Answers it: members with their topics and assignments; timeouts are not told."""
