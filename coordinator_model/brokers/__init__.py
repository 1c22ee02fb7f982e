"""The brokers: their clocks, which of them coordinates a shard, and when lines of theirs are missing."""
