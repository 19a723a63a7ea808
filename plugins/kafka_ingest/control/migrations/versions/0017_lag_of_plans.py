"""How far a feed was behind when a batch was planned."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add a column; of earlier batches it is not known."""
    lag: sa.Column[int] = sa.Column(
        "lag",
        sa.BigInteger(),
        nullable=True,
        comment="how many offsets a live batch's feed could read when it was planned",
    )
    op.add_column("batch", lag)
