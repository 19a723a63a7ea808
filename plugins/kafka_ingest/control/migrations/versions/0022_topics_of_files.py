"""What files for many topics came to."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Add two empty tables."""
    op.create_table(
        "topics_file",
        sa.Column("file", sa.Text(), nullable=False, comment="below the folder of feed files"),
        sa.Column("planned_at", sa.DateTime(timezone=True), nullable=False, comment="when its last plan asked Kafka"),
        sa.Column("pattern", sa.Text(), nullable=False, comment="for_each_topic, as it was then"),
        sa.PrimaryKeyConstraint("file", name=op.f("pk_topics_file")),
        comment="one row a file with for_each_topic",
    )
    op.create_table(
        "file_topic",
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("conn_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.Text()),
        sa.Column("feed", sa.Text(), comment="its feed's name; null where it has none yet, or is left out"),
        sa.Column("found_after", sa.DateTime(timezone=True), comment="the plan before, which would have found it"),
        sa.ForeignKeyConstraint(["file"], ["topics_file.file"], name=op.f("fk_file_topic_topics_file")),
        sa.PrimaryKeyConstraint("file", "topic", name=op.f("pk_file_topic")),
        comment="the topics that plans of a file have found",
    )
