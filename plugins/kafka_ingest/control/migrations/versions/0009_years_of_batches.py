"""Sums and indexes, so that what is asked daily takes as long after years as on the first day."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add two sums, count what was committed so far once, and add indexes; all rows stay."""
    op.add_column(
        "feed",
        sa.Column(
            "rows_committed",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="what its batches have committed; copies not",
        ),
    )
    op.add_column(
        "stored_offset",
        sa.Column(
            "rows",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="how many were committed of the topic with this id; copies not",
        ),
    )
    op.execute(
        "UPDATE feed SET rows_committed = (SELECT coalesce(sum(batch.rows), 0) FROM batch "
        "WHERE batch.feed_id = feed.feed_id AND batch.kind <> 'copy' AND batch.state = 'COMMITTED')"
    )
    count_rows()
    op.create_index("ix_batch_planned", "batch", ["planned_at"])
    op.create_index("ix_batch_ids", "batch", ["feed_id", "batch_id"])
    op.create_index("ix_batch_published", "batch", ["feed_id", "kind", "state", "batch_id"])
    not_live = sa.text("kind <> 'live'")
    op.drop_index("ix_batch_not_live", "batch")
    op.create_index(
        "ix_batch_not_live", "batch", ["feed_id", "planned_at"], sqlite_where=not_live, postgresql_where=not_live
    )
    not_committed, ahead = sa.text("state <> 'COMMITTED'"), sa.text("applied_at IS NULL")
    op.create_index(
        "ix_batch_not_committed",
        "batch",
        ["feed_id", "updated_at"],
        sqlite_where=not_committed,
        postgresql_where=not_committed,
    )
    op.create_index("ix_attempt_cleaned", "attempt", ["cleaned_at"])
    op.create_index("ix_gap_ahead", "gap", ["feed_id"], sqlite_where=ahead, postgresql_where=ahead)
    op.create_index("ix_event_kind", "event", ["feed_id", "kind", "event_id"])


def count_rows() -> None:
    """Count what was committed of each partition, as its topic is now."""
    # A table of its own: neither database can look years of ranges up by partition, so they are read once, for all.
    op.execute(
        "CREATE TEMPORARY TABLE counted AS SELECT batch.feed_id AS feed_id, batch_range.topic AS topic, "
        'batch_range."partition" AS number, batch_range.topic_id AS topic_id, sum(batch_range.rows) AS total '
        "FROM batch JOIN batch_range ON batch_range.batch_id = batch.batch_id "
        "WHERE batch.kind <> 'copy' AND batch.state = 'COMMITTED' "
        'GROUP BY batch.feed_id, batch_range.topic, batch_range."partition", batch_range.topic_id'
    )
    op.create_index("ix_counted", "counted", ["feed_id", "topic", "number"])
    op.execute(
        "UPDATE stored_offset SET rows = coalesce((SELECT sum(counted.total) FROM counted "
        "WHERE counted.feed_id = stored_offset.feed_id AND counted.topic = stored_offset.topic "
        'AND counted.number = stored_offset."partition" AND '
        "(counted.topic_id = stored_offset.topic_id OR "
        "(counted.topic_id IS NULL AND stored_offset.topic_id IS NULL))), 0)"
    )
    op.execute("DROP TABLE counted")
