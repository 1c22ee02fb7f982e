"""What an answer of a broker, or a word of a client, can say about a group."""
