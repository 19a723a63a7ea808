"""Batch ids contain their time (RFC 9562, version 7): 48 bits of milliseconds since 1970, above 80 others."""

from uuid import UUID

DATED = 7
"""The version of the ids that contain a time."""

BELOW_TIMESTAMP = 80  # bits


def milliseconds_of(dated_id: UUID) -> int:
    """Return when an id was made, in milliseconds since 1970."""
    return dated_id.int >> BELOW_TIMESTAMP
