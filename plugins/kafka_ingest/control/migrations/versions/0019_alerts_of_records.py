"""Alerts of records that became no row: filtered ones, and dead letters."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

BEFORE = "'lag', 'behind', 'headroom', 'open_batch', 'held', 'gap', 'stopped', 'unusable', 'unreachable'"
NOW = "'lag', 'behind', 'headroom', 'open_batch', 'held', 'gap', 'stopped', 'filtered_percent', 'dead_letters', "
NOW += "'unusable', 'unreachable'"
HOLDS: dict[str, Any] = {"sqlite_where": sa.text("ended_at IS NULL"), "postgresql_where": sa.text("ended_at IS NULL")}


def upgrade() -> None:
    """Widen a check; all rows stay. SQLite cannot alter a check: ``alert`` is copied."""
    with op.batch_alter_table("alert", copy_from=alert_before()) as table:
        table.drop_constraint(op.f("ck_alert_kind"), type_="check")
        table.create_check_constraint(op.f("ck_alert_kind"), f"kind IN ({NOW})")


def alert_before() -> sa.Table:
    """Return ``alert`` as version 0018 has it."""
    return sa.Table(
        "alert",
        sa.MetaData(),
        sa.Column("alert_id", sa.Uuid(), nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint(f"kind IN ({BEFORE})", name=op.f("ck_alert_kind")),
        sa.CheckConstraint("ended_at >= began_at", name=op.f("ck_alert_ended")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_alert_feed")),
        sa.PrimaryKeyConstraint("alert_id", name=op.f("pk_alert")),
        sa.Index("uq_alert_current", "feed_id", "kind", "subject", unique=True, **HOLDS),
    )
