"""A stored offset's leader epoch is the one in which its log was seen to reach it."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Forget the epochs: gaps and resets moved stored offsets on and left them behind. The next plan notes them."""
    stored_offset = sa.table("stored_offset", sa.column("leader_epoch", sa.Integer()))
    op.execute(sa.update(stored_offset).values(leader_epoch=None))
