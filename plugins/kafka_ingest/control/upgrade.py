"""Create or upgrade the control tables, with Alembic. Only ``db upgrade`` uses it, in a shell or from its form."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, func, select, text

from kafka_ingest.control.database import UPGRADE_COMMAND, check_supported, described, found_version, transaction
from kafka_ingest.control.schema import SCHEMA_VERSION, VERSION_TABLE, metadata
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
