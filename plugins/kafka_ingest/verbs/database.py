"""``db upgrade``, ``db copy`` and ``rename-feed``: what is done to the control tables alone."""

from typing import Annotated

from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.control.database import ControlDatabaseSettings, check_version, found_version, open_database
from kafka_ingest.control.schema import SCHEMA_VERSION
from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.settings.connections import CONTROL_CONN_ID, control_database
from kafka_ingest.settings.feed import NAME
from kafka_ingest.settings.run_request import Text
from kafka_ingest.verbs.answer import Answer, Line
from kafka_ingest.verbs.request import Argument, Call, Deciding, InForm, Needed, Option, Request


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


class CopyTables(Request):
    """Copy the control tables into another database, and compare them there row by row.

    Pause all DAGs first. Then let the connection kafka_ingest name the copy: the tables that were copied refuse all
    further steps.
    """

    verb = "db-copy"
    command = "db copy"
    does = "copies the control tables into another database"
    deciding = Deciding.DRY_RUN
    command_names_feed = needs_feed = False

    to: Annotated[
        str,
        Option("The id of an Airflow connection to a database without control tables, or with empty ones."),
        Needed("to, the id of a connection to another database,"),
    ] = ""

    def answer(self, call: Call) -> Answer:
        from kafka_ingest.control.copy_tables import copy_tables, would_copy  # noqa: PLC0415 - for this verb only
        from kafka_ingest.control.upgrade import upgrade  # noqa: PLC0415 - Alembic, for this verb only

        source, target = (control_database(call.find_connection(name)) for name in (CONTROL_CONN_ID, self.to))
        old, file = open_database(source), target.sqlite_file
        check_version(old)  # before the other database is made
        new = open_database(target) if file is None or file.exists() else None
        has_tables = new is not None and found_version(new) is not None
        if call.decided is None:
            rows = would_copy(old, new if has_tables else None)
        else:
            new = open_database(target, create=True)
            if not has_tables:
                upgrade(new, create=True)
            with call.counting("rows copied") as advance:
                rows = copy_tables(old, new, advance)
        executed = call.decided is not None
        said = f"copied and compared: {counted(sum(rows.values()), 'row')}" if executed else "would be copied"
        lines = [Line(f"{source} → {target}: {said}"), *(Line(f"  {name:<14}{rows[name]:>12,}") for name in rows)]
        if executed:
            lines.append(Line(f"Let connection {CONTROL_CONN_ID} name {target} now; {source} refuses further steps."))
        document = {"from": str(source), "to": str(target), "rows": rows, "executed": executed}
        return Answer(document, lines, only_shown=not executed)


class Rename(Request):
    """Rename a feed and keep its offsets and history. Then change `name` in its file: until then its runs stop."""

    verb = "rename"
    command = "rename-feed"
    does = "gives a feed another name, and keeps its offsets"
    deciding = Deciding.REASON
    command_names_feed = False

    old: Annotated[str, Argument("The feed's name in the control tables.", "OLD")] = ""
    new: Annotated[str, Argument("Its name in its file from now on.", "NEW")] = ""
    new_name: Annotated[Text, InForm("New name", "The name that the feed's file is to have from now on.", "rename")] = (
        None
    )
    old_name: Annotated[
        Text, InForm("Or its old name", "Where the file has the new name already: the one before.", "rename")
    ] = None

    def answer(self, call: Call) -> Answer:
        """Rename a feed; by form the one that was chosen, or another to its name, where its file has been changed."""
        old, new = self.old, self.new
        if not call.is_shell:
            if (self.new_name is None) == (self.old_name is None):
                raise call.missing("either new_name or old_name")
            old, new = self.old_name or call.feed_name, self.new_name or call.feed_name
        control, decided = call.control, call.decided
        feed = known_feed(control, old)
        if control.feed(new) is not None:
            raise WrongUseError(
                f"the control tables know a feed {new!r} already; a name is one feed's. Nothing was changed."
            )
        if not NAME.fullmatch(new):
            raise WrongUseError(f"expected a name that a feed file can have, found {new!r}. Nothing was changed.")
        executed = decided is not None
        if decided is not None:
            control.rename_feed(feed, new, reason=decided.reason, actor=decided.actor)
        text = f"feed {old} {'is now' if executed else 'would be'} {new}; its offsets and batches are kept"
        document = {"feed_id": str(feed.feed_id), "was": old, "is": new, "executed": executed}
        return Answer(document, [Line(text)], only_shown=not executed)
