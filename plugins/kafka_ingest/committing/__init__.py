"""Verify, publish, advance the stored offsets, and bring the consumer group after them."""
