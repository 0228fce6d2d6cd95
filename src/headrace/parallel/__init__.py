"""The parallel consumer: more handlers at work than a topic has partitions."""
