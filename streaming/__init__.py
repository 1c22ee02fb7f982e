"""How it moves: Spark, Kafka, SQL, HTTP, notifications. It decides nothing about groups."""
