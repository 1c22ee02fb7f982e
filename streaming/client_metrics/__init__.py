"""The metrics that clients push to brokers (KIP-714): the broker's plugin, the subscription, and the parser."""
