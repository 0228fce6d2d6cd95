"""Files to Kafka: planned by content, read in chunks, sent exactly once."""
