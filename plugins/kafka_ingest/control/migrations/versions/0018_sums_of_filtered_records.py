"""A sum of what was filtered of each partition, so that coverage says it without reading years of ranges."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the sum, and count what was committed so far once; all rows stay."""
    op.add_column(
        "stored_offset",
        sa.Column(
            "filtered",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="how many of its records the feed has filtered; copies not",
        ),
    )
    # A table of its own: neither database can look years of ranges up by partition, so they are read once, for all.
    op.execute(
        "CREATE TEMPORARY TABLE counted AS SELECT feed_id, topic, number, topic_id, sum(filtered) AS total FROM ("
        "SELECT batch.feed_id AS feed_id, batch_range.topic AS topic, "
        'batch_range."partition" AS number, batch_range.topic_id AS topic_id, batch_range.filtered AS filtered '
        "FROM batch JOIN batch_range ON batch_range.batch_id = batch.batch_id "
        "WHERE batch.kind IN ('live', 'backfill', 'replay') AND batch.state = 'COMMITTED' "
        "AND batch_range.filtered > 0 "
        'UNION ALL SELECT feed_id, topic, "partition" AS number, topic_id, filtered '
        "FROM folded_range WHERE filtered > 0) AS each_range GROUP BY feed_id, topic, number, topic_id"
    )
    op.execute(
        "UPDATE stored_offset SET filtered = coalesce((SELECT sum(counted.total) FROM counted "
        "WHERE counted.feed_id = stored_offset.feed_id AND counted.topic = stored_offset.topic "
        'AND counted.number = stored_offset."partition" AND '
        "(counted.topic_id = stored_offset.topic_id OR "
        "(counted.topic_id IS NULL AND stored_offset.topic_id IS NULL))), 0)"
    )
    op.execute("DROP TABLE counted")
