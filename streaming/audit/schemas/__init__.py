"""Messages of Kafka's protocol that kafka-python lacks, in its own format: ConsumerGroupDescribe (KIP-848)."""

import sys
from typing import Final

from kafka.protocol.api_message import ApiMessage

_HERE: Final = sys.modules[__name__]


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg] # without types
    """The request to describe groups of the protocol `consumer`."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[misc,call-arg] # without types
    """The response: members with their topics and assignments, without timeouts."""
