"""Outbox -> receivers. Every receiver answers `Delivered`, `Retry` or `Rejected`; `courier` acts on the answer."""
