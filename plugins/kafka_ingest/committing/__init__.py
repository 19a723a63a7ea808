"""Verify, publish, advance the stored offsets, and set the consumer group to them."""
