"""The Spark job: Kafka rows in, incidents out."""
