"""``db upgrade``, ``db copy``, ``rename-feed`` and ``fold``: what is done to the control tables alone."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.control.database import ControlDatabaseSettings, check_version, found_version, open_database
from kafka_ingest.control.schema import SCHEMA_VERSION
from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.folded import Foldable, FoldCut, Folded
from kafka_ingest.ports.control import FoldingTables
from kafka_ingest.settings.connections import CONTROL_CONN_ID, control_database
from kafka_ingest.settings.feed import LEAST_RETENTION, NAME, Feed
from kafka_ingest.settings.run_request import InForm, Text
from kafka_ingest.verbs.answer import Answer, Line, moment
from kafka_ingest.verbs.expire import time_before
from kafka_ingest.verbs.request import BEFORE, Argument, Call, Deciding, Needed, Option, Request


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
        from kafka_ingest.control.upgrade import (  # noqa: PLC0415 - for this verb only
            copy_tables,
            upgrade,
            would_copy,
        )

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


class Fold(Request):
    """Sum up the control tables' rows of old live batches. Their receipts keep the ranges; coverage stays provable.

    An interruption leaves nothing half done; run it again to continue.
    """

    verb = command = "fold"
    does = "replaces what the control tables hold of old batches by sums; coverage stays provable"
    deciding = Deciding.DRY_RUN

    before: Annotated[
        Text,
        BEFORE,
        Option(
            "Batches committed before this time, or longer ago: 2026-01-31, 2026-01-31T12:00:00Z, 365d; "
            "without, the feed's control_retention.",
            metavar="TIME|DURATION",
        ),
    ] = None

    def answer(self, call: Call) -> Answer:
        parts, decided = call.parts, call.decided
        named = call.named("before")
        cut = cut_of(parts.feed, time_before(self.before, named) if self.before is not None else None, named)
        feed_id = known_feed(parts.control, parts.feed.name).feed_id
        there = parts.control.foldable(feed_id, cut)
        done: list[Folded] = []
        if decided is not None:
            with call.counting("batches folded") as on_folded:
                for folded in fold(feed_id, cut, parts.control, actor=decided.actor, reason=decided.reason or None):
                    done.append(folded)
                    on_folded(folded.batches)
        total = sum_of(done) if decided is not None else None
        return Answer(
            fold_document(parts.feed.name, cut.before, there, total),
            shown_folded(cut.before, there, total),
            only_shown=total is None and (there.batches > 0 or there.events > 0),
        )


def cut_of(feed: Feed, before: datetime | None = None, named: str = "before") -> FoldCut:
    """Return what may be folded; raises WrongUseError where neither the caller nor the feed says what is old."""
    now = datetime.now(UTC)
    if before is None and feed.control_retention is None:
        raise WrongUseError(
            f"feed {feed.name}: expected {named}, or control_retention in its file, found neither: nothing says what "
            "is old. Nothing was changed."
        )
    return cut_before(before or now - (feed.control_retention or timedelta()), now)


def cut_before(before: datetime, now: datetime) -> FoldCut:
    """Return what may be folded; raises WrongUseError on a time that is too near."""
    if before > now - LEAST_RETENTION:
        raise WrongUseError(
            f"expected a time {LEAST_RETENTION.days} days ago or earlier, found {before.isoformat()}: the control "
            "tables keep every range of younger batches. Nothing was changed."
        )
    return FoldCut(before)


def fold(
    feed_id: UUID, cut: FoldCut, control: FoldingTables, *, actor: str, reason: str | None = None
) -> Iterator[Folded]:
    """Fold everything old enough, and yield what each transaction has folded; finally add a line to the journal.

    Each transaction folds a few whole batches under the feed's lock: a run never waits long, after an interruption no
    batch is half folded, and two calls at once share the work.
    """
    done: list[Folded] = []
    while not (folded := control.fold(feed_id, cut)).is_nothing:
        done.append(folded)
        yield folded
    if done:
        detail = {"before": cut.before.astimezone(UTC).isoformat(), **document_of(sum_of(done))}
        detail |= {"reason": reason} if reason is not None else {}
        control.record_event(feed_id, "folded", actor=actor, batch_id=None, detail=detail)


def sum_of(done: Sequence[Folded]) -> Folded:
    names = [each.name for each in fields(Folded)]
    return Folded(**{name: sum(getattr(each, name) for each in done) for name in names})


def fold_document(feed_name: str, before: datetime, there: Foldable, done: Folded | None) -> dict[str, Any]:
    return {
        "feed": feed_name,
        "before": before.isoformat(),
        "executed": done is not None,
        "batches": there.batches if done is None else done.batches,
        "ranges": None if done is None else done.ranges,
        "attempts": None if done is None else done.attempts,
        "events": there.events if done is None else done.events,
        "kept": [{"reason": reason, "batches": batches} for reason, batches in kept(there)],
    }


def kept(there: Foldable) -> list[tuple[str, int]]:
    reasons = (
        ("their Asset events are not recorded yet: the feed's next run announces them", there.to_announce),
        ("their staged output is not removed yet: `kafka-ingest clean` does that", there.staged),
    )
    return [(reason, batches) for reason, batches in reasons if batches]


def shown_folded(before: datetime, there: Foldable, done: Folded | None) -> Iterator[Line]:
    for reason, batches in kept(there):
        yield Line(f"{counted(batches, 'batch')} not folded: {reason}", "yellow")
    if done is None:
        text = f"would fold {counted(there.batches, 'batch')} committed before {moment(before)} UTC, and remove "
        yield Line(f"{text}{counted(there.events, 'line')} of the journal")
        return
    text = f"folded {counted(done.batches, 'batch')} committed before {moment(before)} UTC: "
    yield Line(
        f"{text}{counted(done.ranges, 'range')} and {counted(done.attempts, 'attempt')} became sums, "
        f"{counted(done.events, 'line')} of the journal {were(done.events)} removed"
    )
