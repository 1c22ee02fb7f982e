"""Decoding: rows of Kafka (records and telemetry lines) become events."""
