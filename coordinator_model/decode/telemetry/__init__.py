"""Telemetry: lines of brokers and reports of clients become events."""
