"""``db copy``: take the control tables into another database, such as from SQLite into PostgreSQL."""

from typing import Annotated

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.control.database import check_version, found_version, open_database
from kafka_ingest.foundation.counting import counted
from kafka_ingest.settings.connections import CONTROL_CONN_ID, control_database
from kafka_ingest.verbs.request import Call, Deciding, Needed, Option, Request


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
