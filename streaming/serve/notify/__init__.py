"""Outbox -> receivers. Every receiver answers `Delivered`, `Retry` or `Rejected`, read by `delivery_worker`."""
