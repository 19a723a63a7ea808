"""``db upgrade``: bring the control tables to this version's schema."""

from typing import Annotated

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.control.schema import SCHEMA_VERSION
from kafka_ingest.settings.connections import CONTROL_CONN_ID, control_database
from kafka_ingest.verbs.request import Call, Deciding, InForm, Option, Request


class Upgrade(Request):
    """Bring the control tables to this version's schema. Nothing else ever creates or changes them."""

    verb = "db-upgrade"
    command = "db upgrade"
    does = "brings the control tables to this version's schema"
    deciding = Deciding.DRY_RUN
    command_names_feed = needs_feed = False

    create: Annotated[
        bool,
        InForm("Create", "Make the control tables where there are none yet.", "db-upgrade"),
        Option("Make the control tables where there are none yet."),
    ] = False

    def answer(self, call: Call) -> Answer:
        from kafka_ingest.control.upgrade import upgrade  # noqa: PLC0415 - Alembic, for this verb only

        settings = control_database(call.find_connection(CONTROL_CONN_ID))
        if call.decided is None:
            return would_upgrade(settings, create=self.create)
        before, now = upgrade(open_database(settings, create=self.create), create=self.create)
        text = f"schema {now} already" if before == now else f"schema {before or 'none'} → {now}"
        return Answer(
            {"database": str(settings), "version_before": before, "version_now": now, "executed": True},
            [Line(f"{settings}: {text}")],
        )


def would_upgrade(settings: ControlDatabaseSettings, *, create: bool) -> Answer:
    """Show which revisions are pending. A SQLite file that is still to be made is not made by looking for it."""
    from kafka_ingest.control.upgrade import pending  # noqa: PLC0415 - Alembic, for this verb only

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
