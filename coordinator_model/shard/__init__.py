"""One shard: batches, time, its groups, and its state."""
