"""One shard: how it applies a batch, when it makes verdicts, what it keeps about its groups, and its state."""
