"""What the log and the telemetry say: rows of Kafka become events."""
