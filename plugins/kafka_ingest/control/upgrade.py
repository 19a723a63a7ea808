"""Create or upgrade the control tables, with Alembic; copy them into another database, and compare them row by row.

Only ``db upgrade`` and ``db copy`` use it, in a shell or from their forms.
"""

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    Select,
    Table,
    Text,
    cast,
    collate,
    column,
    func,
    insert,
    select,
    table,
    text,
    type_coerce,
)
from sqlalchemy.schema import AddConstraint, DropConstraint
from sqlalchemy.types import TypeEngine

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import (
    MOVED,
    NO_MORE_WRITES,
    UPGRADE_COMMAND,
    check_supported,
    check_version,
    described,
    found_version,
    transaction,
)
from kafka_ingest.control.rows import insert_arrays
from kafka_ingest.control.schema import (
    SCHEMA_VERSION,
    VERSION_TABLE,
    StorableDocument,
    StorableText,
    batch,
    event,
    metadata,
)
from kafka_ingest.errors import ControlSchemaError

UPGRADE_LOCK = 0x6B61666B61  # any number that nothing else locks in this database


def alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def pending(engine: Engine | None, *, create: bool) -> tuple[str | None, list[tuple[str, str]]]:
    """Return the version of the schema now, and the revisions that an upgrade would apply, with what each is about.

    ``engine`` is None where the database is still to be made. Raises what :func:`upgrade` raises; nothing is written.
    """
    before = found_version(engine) if engine is not None else None
    if engine is not None:
        check_upgradable(before, engine, create=create)
    scripts = reversed(list(ScriptDirectory.from_config(alembic_config()).walk_revisions()))
    return before, [(each.revision, each.doc.partition("\n")[0]) for each in scripts if each.revision > (before or "")]


def check_upgradable(before: str | None, engine: Engine, *, create: bool) -> None:
    """Raise ControlSchemaError where there are no control tables and none are to be made, or unsupported ones."""
    where = described(engine.url)
    if before is None and not create:
        raise ControlSchemaError(
            f"{where} holds no control tables. Is this the right database? To make them: `{UPGRADE_COMMAND} --create`."
        )
    if before is not None:
        check_supported(before, where)


def upgrade(engine: Engine, *, create: bool) -> tuple[str | None, str]:
    """Bring the schema to the newest version and return (version before, version now).

    Raises ControlSchemaError where there are no control tables and ``create`` was not asked for, where they are newer
    than this code, or older than the first version that is upgraded.
    """
    before = found_version(engine)
    where = described(engine.url)
    check_upgradable(before, engine, create=create)
    config = alembic_config()
    with transaction(engine, "upgrade") as connection:
        if engine.dialect.name == "postgresql":
            # Two upgrades at once: the second waits and finds nothing to do. SQLite's BEGIN IMMEDIATE does the same.
            connection.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
        config.attributes["connection"] = connection
        known = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()
        if known is None:
            # Of a copy: SQLAlchemy marks a constraint that PostgreSQL gets later, and no SQLite would get it any more.
            tables = MetaData(naming_convention=metadata.naming_convention)
            for each in metadata.sorted_tables:
                each.to_metadata(tables)
            tables.create_all(connection, checkfirst=False)
            command.stamp(config, "head")
        else:
            command.upgrade(config, "head")
        if engine.dialect.name == "sqlite" and (broken := connection.execute(text("PRAGMA foreign_key_check")).all()):
            raise ControlSchemaError(
                f"{where}: expected every row to refer to existing rows, found {len(broken):,} that do not, the first "
                f"in table {broken[0][0]}. Nothing was changed; restore the file from a backup."
            )
    return before, SCHEMA_VERSION


AT_ONCE: Final = 5_000
"""So many rows are in memory."""

PINNED: Final = next(each for each in batch.foreign_key_constraints if each.use_alter)
"""Batches name attempts, and these batches: one of both references can only be checked once all rows are there."""


SAYS_SO: Final = f"$$ BEGIN RAISE EXCEPTION '{NO_MORE_WRITES}'; END $$"
REFUSALS: Final = {
    "sqlite": [
        f"CREATE TRIGGER IF NOT EXISTS moved_{verb} BEFORE {verb} ON feed "
        f"BEGIN SELECT RAISE(ABORT, '{NO_MORE_WRITES}'); END"
        for verb in ("INSERT", "UPDATE")
    ],
    "postgresql": [
        f"CREATE OR REPLACE FUNCTION kafka_ingest_moved() RETURNS trigger LANGUAGE plpgsql AS {SAYS_SO}",
        "CREATE OR REPLACE TRIGGER moved BEFORE INSERT OR UPDATE ON feed EXECUTE FUNCTION kafka_ingest_moved()",
    ],
}
"""Each write to a feed's rows changes its revision: a step that had begun before the copy ends here, and as a whole."""


def would_copy(source: Engine, target: Engine | None) -> dict[str, int]:
    """Return how many rows each table has; raises what :func:`copy_tables` raises. No ``target``: it is to be made."""
    check_version(source)
    if target is not None:
        check_version(target)
        check_another(source, target)
    with transaction(source, "read") as old:
        if target is not None:
            with transaction(target, "read") as new:
                if any(counted(new).values()):
                    compare_all(old, new)
        return counted(old)


def copy_tables(source: Engine, target: Engine, advance: Callable[[int], object]) -> dict[str, int]:
    """Copy all rows from one database into the empty tables of another, and return how many each table has.

    Nothing is written to the source meanwhile; at the end it is marked, and no later step uses it. A copy that ended in
    between is compared and marked. Raises ControlSchemaError where the other database has other rows, and then changes
    neither; ``advance`` is called with the number of rows after some of them.
    """
    check_version(source)
    check_version(target)
    check_another(source, target)
    with transaction(source, "rebuild") as old:
        if old.dialect.name == "postgresql":
            names = ", ".join(each.name for each in metadata.sorted_tables)
            old.execute(text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))
        with transaction(target, "upgrade") as new:
            if not any(counted(new).values()):
                insert_all(old, new, advance)
            compare_all(old, new)
            found = counted(new)
        # After the copy is there for good: without this mark, old tasks would go on where the new ones begin.
        for statement in REFUSALS[old.dialect.name]:
            old.execute(text(statement))
        old.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = :moved").bindparams(moved=MOVED))  # noqa: S608 - a constant
    return found


def check_another(source: Engine, target: Engine) -> None:
    """Raise ControlSchemaError where both are one database: its only tables would be marked."""
    if {source.dialect.name, target.dialect.name} == {"sqlite"}:
        own, other = (Path(described(each.url).removeprefix("sqlite:///")) for each in (source, target))
        is_same = own.samefile(other)
    else:
        with transaction(target, "read") as new:
            is_same = SqlControlTables(source).are_in(new)
    if is_same:
        raise ControlSchemaError(
            f"expected another database than {described(source.url)}, found that it is the same. Nothing was changed."
        )


def compare_all(old: Connection, new: Connection) -> None:
    for each in metadata.sorted_tables:
        compare(old, new, each)


def counted(connection: Connection) -> dict[str, int]:
    return {
        each.name: connection.execute(select(func.count()).select_from(each)).scalar_one()
        for each in metadata.sorted_tables
    }


def insert_all(old: Connection, new: Connection, advance: Callable[[int], object]) -> None:
    """Insert the rows of all tables, of which each is inserted before those that refer to it."""
    is_postgresql = new.dialect.name == "postgresql"
    if is_postgresql:
        new.execute(DropConstraint(PINNED))
    for each in metadata.sorted_tables:
        for rows in old.execute(stored_rows(old, each)).partitions(AT_ONCE):
            insert_stored(new, each, [tuple(row) for row in rows])
            advance(len(rows))
    if is_postgresql:
        new.execute(AddConstraint(PINNED))
        newest = select(func.coalesce(func.max(event.c.event_id), 0) + 1).scalar_subquery()
        new.execute(select(func.setval(func.pg_get_serial_sequence(event.name, event.c.event_id.name), newest, False)))  # noqa: FBT003 - the next one is this
    elif broken := new.execute(text("PRAGMA foreign_key_check")).all():
        raise ControlSchemaError(
            f"expected every row to refer to existing rows, found {len(broken):,} that do not, the first in table "
            f"{broken[0][0]}. Nothing was copied; restore {described(old.engine.url)} from a backup."
        )


def stored_as(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    """Return the type by which a column's values are copied: texts and documents are neither read nor escaped again."""
    return Text() if isinstance(kind, JSON | StorableText | StorableDocument) else kind


def stored_rows(connection: Connection, of: Table) -> Select[Any]:
    """Return a query for all rows as they are stored, in the order of their keys' bytes."""
    is_postgresql = connection.dialect.name == "postgresql"
    take: Callable[[Any, Any], ColumnElement[Any]] = cast if is_postgresql else type_coerce
    columns = [take(each, kind) if (kind := stored_as(each.type)) is not each.type else each for each in of.columns]
    texts = [isinstance(stored_as(each.type), Text) and is_postgresql for each in of.primary_key]
    keys = [collate(each, "C") if is_text else each for each, is_text in zip(of.primary_key, texts, strict=True)]
    return select(*columns).order_by(*keys).execution_options(yield_per=AT_ONCE)


def insert_stored(connection: Connection, into: Table, rows: list[tuple[Any, ...]]) -> None:
    """Insert rows as :func:`stored_rows` returns them."""
    if connection.dialect.name == "postgresql":
        sent = {each.key: stored_as(each.type) for each in into.columns}
        insert_arrays(connection, into, dict(zip(sent, zip(*rows, strict=True), strict=True)), sent)
        return
    plain = table(into.name, *(column(each.name, stored_as(each.type)) for each in into.columns))
    connection.execute(insert(plain), [dict(zip(plain.c.keys(), row, strict=True)) for row in rows])


def compare(old: Connection, new: Connection, of: Table) -> None:
    """Raise ControlSchemaError at the first row that is not the same in both."""
    found = zip_longest(old.execute(stored_rows(old, of)), new.execute(stored_rows(new, of)))
    for number, (here, there) in enumerate(found, 1):
        if here != there:
            raise ControlSchemaError(
                f"expected {described(new.engine.url)} to have no rows, or those of {described(old.engine.url)}, found "
                f"that row {number:,} of {of.name} differs, in the order of its keys. Neither was changed. Copy into a "
                "new, empty database, and stop whatever writes to it."
            )
