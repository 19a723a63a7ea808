"""Decide which offsets a batch reads: pure, apart from :mod:`.plan_batch`, which asks and records."""
