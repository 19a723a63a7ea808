"""Alerts of feeds, and what each notifier was given of them."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

KINDS = "'lag', 'behind', 'headroom', 'open_batch', 'held', 'gap', 'stopped', 'unusable', 'unreachable'"


def upgrade() -> None:
    """Add two tables."""
    op.create_table(
        "alert",
        sa.Column("alert_id", sa.Uuid(), nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column(
            "subject", sa.Text(), nullable=False, comment="which of several things of a kind; empty for the feed"
        ),
        sa.Column("text", sa.Text(), nullable=False, comment="what was found when it began"),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True, comment="null while it holds"),
        sa.CheckConstraint(f"kind IN ({KINDS})", name=op.f("ck_alert_kind")),
        sa.CheckConstraint("ended_at >= began_at", name=op.f("ck_alert_ended")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_alert_feed")),
        sa.PrimaryKeyConstraint("alert_id", name=op.f("pk_alert")),
        comment="what feeds ask to be notified of, as long as it holds and until its end was notified",
    )
    current = sa.text("ended_at IS NULL")
    op.create_index(
        "uq_alert_current",
        "alert",
        ["feed_id", "kind", "subject"],
        unique=True,
        sqlite_where=current,
        postgresql_where=current,
    )
    op.create_table(
        "alert_notice",
        sa.Column("alert_id", sa.Uuid(), nullable=False),
        sa.Column("notifier", sa.Text(), nullable=False, comment="a hash of its class and arguments"),
        sa.Column("change", sa.Text(), nullable=False),
        sa.Column(
            "claimed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="since when a process notifies; null where that failed",
        ),
        sa.Column("said_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True, comment="why the newest try failed"),
        sa.CheckConstraint("change IN ('begun', 'ended')", name=op.f("ck_alert_notice_change")),
        sa.ForeignKeyConstraint(["alert_id"], ["alert.alert_id"], name=op.f("fk_alert_notice_alert")),
        sa.PrimaryKeyConstraint("alert_id", "notifier", "change", name=op.f("pk_alert_notice")),
        comment="what each notifier was given; a claim of a process that died expires",
    )
