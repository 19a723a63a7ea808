"""``db upgrade``: bring the control tables to this version's schema."""

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.control.schema import SCHEMA_VERSION
from kafka_ingest.control.upgrade import pending
from kafka_ingest.control.upgrade import upgrade as upgrade_schema


def upgrade(settings: ControlDatabaseSettings, *, create: bool, execute: bool) -> Answer:
    """Upgrade the control tables, or show which revisions are pending."""
    if not execute:
        return would_upgrade(settings, create=create)
    before, now = upgrade_schema(open_database(settings, create=create), create=create)
    text = f"schema {now} already" if before == now else f"schema {before or 'none'} → {now}"
    return Answer(
        {"database": str(settings), "version_before": before, "version_now": now, "executed": True},
        [Line(f"{settings}: {text}")],
    )


def would_upgrade(settings: ControlDatabaseSettings, *, create: bool) -> Answer:
    """Show which revisions are pending. A SQLite file that is still to be made is not made by looking for it."""
    file = settings.sqlite_file
    is_to_be_made = create and file is not None and not file.exists()
    before, revisions = pending(None if is_to_be_made else open_database(settings), create=create)
    lines = [Line(f"  {revision} {about}") for revision, about in revisions]
    first = f"schema {before or 'none'} → {SCHEMA_VERSION}, {len(revisions):,} revisions are pending:"
    return Answer(
        {
            "database": str(settings),
            "version_before": before,
            "version_now": before,
            "pending": [{"revision": revision, "about": about} for revision, about in revisions],
            "executed": False,
        },
        [Line(f"{settings}: {first if revisions else f'schema {before} already'}"), *lines],
        only_shown=bool(revisions),
    )
