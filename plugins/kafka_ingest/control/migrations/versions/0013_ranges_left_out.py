"""The planned ranges that a batch left out, since Kafka had deleted records of them before they were read."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add a column; of batches from before it is null, since they left nothing out."""
    op.add_column(
        "batch",
        sa.Column(
            "left_out",
            sa.JSON(),
            nullable=True,
            comment="planned ranges that the pinned receipt leaves out, with their log starts; "
            "they have no batch_range",
        ),
    )
