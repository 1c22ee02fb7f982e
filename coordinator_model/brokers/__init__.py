"""What is known of the brokers: their clocks, who coordinates, whose lines are missing."""
