"""One shard: how it applies a batch, when it makes verdicts, what it keeps of its groups, and its state."""
