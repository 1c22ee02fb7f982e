"""Input and output: Spark, Kafka, SQL, HTTP, notifications. `coordinator_model` makes all decisions about groups."""
