"""Delivery from the outbox to receivers. A receiver returns `Delivered`, `Retry` or `Rejected` to `delivery_worker`."""
