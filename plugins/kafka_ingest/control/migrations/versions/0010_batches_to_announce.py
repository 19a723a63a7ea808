"""Batches whose Asset event Airflow may not have recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add a column; what was committed until now counts as announced."""
    to_announce: sa.Column[bool] = sa.Column(
        "to_announce",
        sa.Boolean(),
        nullable=False,
        server_default=sa.false(),
        comment="committed by a DAG run, and its Asset event may not have been recorded",
    )
    op.add_column("batch", to_announce)
    where = sa.text("to_announce")
    op.create_index("ix_batch_to_announce", "batch", ["feed_id"], sqlite_where=where, postgresql_where=where)
