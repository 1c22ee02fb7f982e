"""The brokers: their clocks, which of them coordinates a shard, and when their lines are missing."""
