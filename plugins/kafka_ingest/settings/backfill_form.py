"""A backfill's request as people write it: the DAG's form, a DAG run's conf, or options of the command line."""

import os
import re
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from pydantic import BeforeValidator, Field, ValidationError

from kafka_ingest.batches.backfill_request import (
    MAX_RECORDS,
    BackfillRequest,
    BetweenTimestamps,
    Mode,
    OfBatch,
    OfDagRun,
    OffsetRanges,
    OnMissing,
    OnOverlap,
    OpenChunks,
    OpenGaps,
    Place,
    Selection,
    StoredDeadLetters,
)
from kafka_ingest.errors import InvalidBackfillError, InvalidFeedError, InvalidRangeError
from kafka_ingest.model.decoding import DeadClass
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_files import check_not_taken
from kafka_ingest.settings.run_request import (
    OF_RECORDS,
    OF_TIME,
    OFFSET_RANGE,
    PARTITION,
    TOPIC,
    InForm,
    Lines,
    Text,
    blank_is_none,
    none_is_empty,
    range_named,
    without_lineage,
)
from kafka_ingest.settings.setting_types import Instant, Records, Settings, describe
from kafka_ingest.settings.sink_settings.local_directory import DATA_VARIABLE, in_object_store

PLACE = rf"^({TOPIC})(:{PARTITION})?$"
"""``orders`` or ``orders:0``."""

CAUSE = "^[A-Z0-9_]+$"
"""``NOT_JSON``: why records could not be decoded."""

what = partial(InForm, section="What to read: one of these")
how = partial(InForm, section="How")

When = Annotated[Instant | None, BeforeValidator(blank_is_none)]
SELECTIONS = ("offset_ranges", "from_timestamp or to_timestamp", "batch_id", "dag_run_id", "open_gaps", "open_chunks")


class BackfillForm(Settings):
    """What the form of ``backfill_offsets`` asks for. The ranges are selected in one of six ways.

    Dead letters to replay are all, or those of ``batch_id``, of batches committed from ``from_timestamp`` on, and of
    some ``causes``.
    """

    feed: str
    offset_ranges: Annotated[
        Lines,
        what(
            "Offset ranges",
            "One per line: TOPIC:PARTITION=FROM-TO, such as orders:0=1200-1300. FROM is read, TO is not.",
            schema={"pattern": OFFSET_RANGE},
        ),
    ] = Field(default_factory=list)
    from_timestamp: Annotated[
        When,
        what(
            "From this time",
            "The first record of this time or later; empty: from where the log starts. With mode replay: the dead "
            "letters of batches that were committed at this time or later.",
            schema=OF_TIME,
        ),
    ] = None
    to_timestamp: Annotated[
        When,
        what(
            "To this time",
            "Up to the first record of this time or later, which is not read; empty: as far as may be read.",
            schema=OF_TIME,
        ),
    ] = None
    batch_id: Annotated[
        UUID | None,
        BeforeValidator(blank_is_none),
        what(
            "The ranges of a batch", "An earlier batch's id (kafka-ingest batches). With mode replay: its dead letters."
        ),
    ] = None
    dag_run_id: Annotated[
        Text, what("The ranges of a DAG run", "The id of an earlier run that planned or committed batches of the feed.")
    ] = None
    open_gaps: Annotated[
        bool, what("All open gaps", "What kafka-ingest gaps lists as open. Gaps by retention are left out.")
    ] = False
    open_chunks: Annotated[
        bool,
        what("The open chunks", "Nothing new: continue with the chunks that earlier runs planned and did not commit."),
    ] = False
    only: Annotated[
        Lines,
        how(
            "Only these",
            "Limits what is read: one TOPIC or TOPIC:PARTITION per line; empty: all partitions of the feed.",
            schema={"pattern": PLACE},
        ),
    ] = Field(default_factory=list)
    causes: Annotated[
        list[DeadClass],
        BeforeValidator(none_is_empty),
        how(
            "Only these dead letters",
            "With mode replay: one cause per line, such as DOES_NOT_FIT (kafka-ingest dead-letters); empty: all.",
            schema={"pattern": CAUSE},
        ),
    ] = Field(default_factory=list)
    mode: Annotated[
        Mode,
        how(
            "Mode",
            "fill: offsets below the stored ones that are missing in the feed's output, into that output. "
            "copy: any offsets, into another output; the feed's own is not changed. replace: whole ranges that batches "
            "have committed, whose rows in the feed's output (a table) are replaced in one commit for each chunk. "
            "replay: dead letters, decoded as the feed says now from their own bytes; what is good becomes rows, the "
            "rest stays. Without a batch or a time: all of them.",
        ),
    ] = Mode.FILL
    output: Annotated[
        Text, how("Output of a copy", "A separate directory, below KAFKA_INGEST_DATA or next to the feed's output.")
    ] = None
    overlap: Annotated[
        OnOverlap,
        how(
            "What is in the output already",
            "cut: it is left out. refuse: nothing is planned. The same applies to the offsets of another open "
            "backfill.",
        ),
    ] = OnOverlap.CUT
    missing: Annotated[
        OnMissing,
        how(
            "What retention has deleted",
            "refuse: nothing is planned, and the missing ranges are named. record_gap: the rest is read, and the "
            "missing offsets are recorded as a gap.",
        ),
    ] = OnMissing.REFUSE
    max_records: Annotated[
        Records | None,
        how("Records of a chunk", "At most; empty: the feed's limits.max_records, or 5,000,000.", schema=OF_RECORDS),
    ] = None
    reason: Annotated[Text, how("Why", "Kept in the audit journal (kafka-ingest history).")] = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "BackfillForm":
        try:
            return cls.model_validate(without_lineage(values))
        except ValidationError as error:
            asked = "replay" if values.get("mode") == Mode.REPLAY.value else "backfill"
            raise InvalidBackfillError(
                f"the {asked} asks for what it cannot have: {'; '.join(describe(error, cls))}. Nothing was planned."
            ) from error

    def request(
        self, feed: Feed, environment: Mapping[str, str] = os.environ, *, anywhere: bool = False
    ) -> BackfillRequest:
        """Return the request; raises InvalidBackfillError where it cannot be used.

        A copy goes below KAFKA_INGEST_DATA, or next to the feed's output: the right to trigger a DAG is not the right
        to write anywhere on the machine. ``anywhere``: the caller has a shell there.
        """
        if self.mode is Mode.REPLACE and (self.overlap, self.missing) != (OnOverlap.CUT, OnMissing.REFUSE):
            raise InvalidBackfillError(
                f"expected neither overlap nor missing with mode replace, found {self.overlap} and {self.missing}: it "
                "replaces all that it is asked for, or nothing is planned. Nothing was planned."
            )
        if self.causes and self.mode is not Mode.REPLAY:
            raise InvalidBackfillError(
                f"expected causes of dead letters with mode replay only, found them with {self.mode}. Nothing was "
                "planned."
            )
        asked = self.model_dump(mode="json", exclude_defaults=True) | {"mode": self.mode.value}
        return BackfillRequest(
            selection=self._selection(),
            asked=asked,
            mode=self.mode,
            on_overlap=self.overlap,
            on_missing=self.missing,
            output=self._output(feed, environment, anywhere=anywhere),
            only=[place_of(text) for text in self.only],
            max_records=self.max_records or feed.limits.max_records or MAX_RECORDS,
        )

    def _selection(self) -> Selection:
        if self.mode is Mode.REPLAY and not self.open_chunks:
            return self._letters()
        by_time = self.from_timestamp is not None or self.to_timestamp is not None
        given = [
            bool(self.offset_ranges),
            by_time,
            self.batch_id is not None,
            self.dag_run_id is not None,
            self.open_gaps,
            self.open_chunks,
        ]
        if sum(given) != 1:
            found = [name for name, is_given in zip(SELECTIONS, given, strict=True) if is_given]
            raise InvalidBackfillError(
                f"expected one of {', '.join(SELECTIONS)} to say what is read, found {' and '.join(found) or 'none'}. "
                "Nothing was planned."
            )
        if self.open_chunks:
            return OpenChunks()
        if self.offset_ranges:
            return OffsetRanges([range_of(text) for text in self.offset_ranges])
        if by_time:
            return between(self.from_timestamp, self.to_timestamp)
        if self.batch_id is not None:
            return OfBatch(self.batch_id)
        return OfDagRun(self.dag_run_id) if self.dag_run_id is not None else OpenGaps()

    def _letters(self) -> StoredDeadLetters:
        """Return which dead letters are replayed; raises InvalidBackfillError on what does not narrow them."""
        others = {
            "offset_ranges": self.offset_ranges,
            "to_timestamp": self.to_timestamp,
            "dag_run_id": self.dag_run_id,
            "open_gaps": self.open_gaps,
            "only": self.only,
            "overlap": self.overlap is not OnOverlap.CUT,
            "missing": self.missing is not OnMissing.REFUSE,
        }
        if found := [name for name, given in others.items() if given]:
            raise InvalidBackfillError(
                "expected batch_id, from_timestamp and causes to say which dead letters mode replay takes, or none of "
                f"them for all; found {' and '.join(found)}. Nothing was planned."
            )
        return StoredDeadLetters(self.batch_id, self.from_timestamp, frozenset(each.value for each in self.causes))

    def _output(self, feed: Feed, environment: Mapping[str, str], *, anywhere: bool) -> OutputLocation | None:
        if self.mode is not Mode.COPY:
            if self.output is not None:
                raise InvalidBackfillError(
                    f"expected an output with mode copy only, found {self.output!r} with {self.mode}, which goes to "
                    "the feed's own. Nothing was planned."
                )
            return None
        if self.output is None:
            raise InvalidBackfillError(
                "expected an output with mode copy: the directory that the copy goes to, absolute or below "
                "KAFKA_INGEST_DATA; found none. Nothing was planned."
            )
        if in_object_store(feed.sink.path) or in_object_store(self.output):
            raise InvalidBackfillError(
                f"output: expected a copy from and to local or mounted directories, found {feed.sink.path} and "
                f"{self.output}: copies into object stores are not made. Fill the feed's own output, or copy the table "
                "with the store's tools. Nothing was planned."
            )
        copy = copy_output(feed, self.output, environment)
        if not anywhere:
            check_below_a_root(copy.path, feed, environment)
        return copy


def between(start: datetime | None, end: datetime | None) -> BetweenTimestamps:
    if start is not None and end is not None and start >= end:
        raise InvalidBackfillError(
            f"expected from_timestamp before to_timestamp, found {start.isoformat()} and {end.isoformat()}. Nothing "
            "was planned."
        )
    return BetweenTimestamps(start, end)


def copy_output(feed: Feed, text: str, environment: Mapping[str, str]) -> OutputLocation:
    """Return the output of a copy; raises InvalidBackfillError where its directory is not the copy's alone."""
    try:
        sink = type(feed.sink).model_validate(feed.sink.of_copy(text))
        copy = feed.model_copy(update={"sink": sink}).output(environment).normalised
    except ValidationError as error:
        raise InvalidBackfillError(
            f"output: {'; '.join(describe(error, type(feed.sink)))}. Nothing was planned."
        ) from error
    except InvalidFeedError as error:
        raise InvalidBackfillError(f"output: {error} Nothing was planned.") from error
    check_not_taken(copy.path, environment, sink.address)
    return copy


def check_below_a_root(path: Path, feed: Feed, environment: Mapping[str, str]) -> None:
    """Raise InvalidBackfillError where a directory is neither below the root of all outputs nor next to the feed's."""
    roots = {feed.output(environment).path.parent.resolve(), Path(environment.get(DATA_VARIABLE) or "/").resolve()}
    roots -= {Path("/")}  # the whole machine is never meant
    if roots.isdisjoint(path.resolve().parents):
        below = " or ".join(sorted(map(str, roots))) or DATA_VARIABLE
        raise InvalidBackfillError(
            f"expected an output of the copy below {below}, found {path}. Nothing was planned. "
            "`kafka-ingest backfill … --copy-to` takes any directory."
        )


def range_of(text: str) -> OffsetRange:
    try:
        return range_named(text)
    except InvalidRangeError as error:
        raise InvalidBackfillError(f"{error}. Nothing was planned.") from error


def place_of(text: str) -> Place:
    found = re.fullmatch(PLACE, text)
    if found is None:
        raise InvalidBackfillError(
            f"expected TOPIC or TOPIC:PARTITION, such as orders or orders:0, found {text!r}. Nothing was planned."
        )
    return Place(found[1], int(found[2][1:]) if found[2] else None)
