"""The daily maintenance tasks of feeds."""

from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowSkipException
from airflow.sdk import BaseOperator, Context

from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow, parts_of, run_of
from kafka_ingest.airflow_tasks.metrics import MIRROR_FAILURES, send_count, send_standing
from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.foundation.counting import counted
from kafka_ingest.observing.feed_status import low_headroom
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import checked_against_others
from kafka_ingest.verbs.clean import clean_up, expired_outputs
from kafka_ingest.verbs.fold import cut_of, fold


class CleanOperator(BaseOperator):
    """Removes expired staged output, and compares all published batches with the control tables."""

    def __init__(self, *, feed: Feed, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(**kwargs)
        self.feed = feed

    def execute(self, context: Context) -> dict[str, int]:  # noqa: ARG002 - Airflow's signature
        """Clean up, and return how many attempts were removed, how many stay, and the bytes that were freed."""
        removed, kept, failed, freed = 0, 0, 0, 0
        with errors_for_airflow():
            parts = planned_before(self.feed)
            for staged in clean_up(expired_outputs(parts), parts.control, parts.sinks):
                if staged.kept is not None:
                    kept, failed = kept + 1, failed + staged.failed
                    self.log.warning("%s stays: %s", staged.attempt.directory, staged.kept)
                    continue
                removed, freed = removed + 1, freed + staged.size_bytes
                self.log.info("removed %s, %s bytes", staged.attempt.directory, f"{staged.size_bytes:,}")
            # A plan looks at the newest batches only.
            parts.check_output_known()
        self.log.info(
            "%s attempts removed, %s stay, %s bytes are free again", f"{removed:,}", f"{kept:,}", f"{freed:,}"
        )
        if failed:
            raise AirflowException(f"{counted(failed, 'attempt')} could not be removed; their warnings above say why")
        return {"removed": removed, "kept": kept, "freed_bytes": freed}


class FoldOperator(BaseOperator):
    """Folds the rows of batches that are older than the feed's ``control_retention``.

    Skipped for a feed whose file shares something with another: the rows and their retention may be the other's.
    """

    def __init__(self, *, feed: Feed, file: FeedFile, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(**kwargs)
        self.feed = feed
        self.file = file

    def execute(self, context: Context) -> dict[str, int]:
        """Fold, and return the numbers of folded batches, ranges, attempts and lines of the journal."""
        counts = dict.fromkeys(("batches", "ranges", "attempts", "events"), 0)
        with errors_for_airflow():
            if (error := checked_against_others(self.file).error) is not None:
                raise AirflowSkipException(f"its batches are not folded: {error}")
            parts = planned_before(self.feed)
            feed_id, cut = known_feed(parts.control, self.feed.name).feed_id, cut_of(self.feed)
            for folded in fold(feed_id, cut, parts.control, actor=run_of(context)):
                counts = {name: count + getattr(folded, name) for name, count in counts.items()}
                self.log.info("folded %s batches so far", f"{counts['batches']:,}")
            there = parts.control.foldable(feed_id, cut)
        self.log.info("folded %s", ", ".join(f"{count:,} {name}" for name, count in counts.items()))
        if stays := there.to_announce + there.staged:
            self.log.info(
                "%s batches stay that are as old: %s to be announced, %s with staged output",
                *(f"{count:,}" for count in (stays, there.to_announce, there.staged)),
            )
        return counts


class MirrorOperator(BaseOperator):
    """Brings the consumer group to the stored offsets, where a commit could not do so or another client moved it.

    Skipped for a feed whose file shares something with another: the group may be the other's.
    """

    def __init__(self, *, feed: Feed, file: FeedFile, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(**kwargs)
        self.feed = feed
        self.file = file

    def execute(self, context: Context) -> None:
        """Repair the mirror; a group that cannot be moved fails the task, so that the drift is visible."""
        with errors_for_airflow():
            if (error := checked_against_others(self.file).error) is not None:
                raise AirflowSkipException(f"its group is not moved: {error}")
            parts = planned_before(self.feed)
            parts.check_output_known()
            mirrored = parts.mirror(actor=run_of(context))
        if mirrored.failure is not None:
            send_count(MIRROR_FAILURES, self.feed.name)
            raise AirflowException(f"the consumer group {mirrored.group} was not moved: {mirrored.failure}")
        self.log.info("the consumer group %s is at the stored offsets", mirrored.group)


class HeadroomOperator(BaseOperator):
    """Warns of partitions that retention is about to reach before they are read."""

    def __init__(self, *, feed: Feed, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(**kwargs)
        self.feed = feed

    def execute(self, context: Context) -> int:  # noqa: ARG002 - Airflow's signature
        """Log a warning for each of them, and return how many there are."""
        with errors_for_airflow():
            parts = planned_before(self.feed)
            send_standing(parts)
            known = known_feed(parts.control, self.feed.name)
            warnings = [str(found) for found in low_headroom(known, parts.kafka, self.feed.kafka.isolation)]
        for warning in warnings:
            self.log.warning("%s", warning)
        if not warnings:
            self.log.info("retention is near none of the feed's stored offsets")
        return len(warnings)


def planned_before(feed: Feed) -> FeedParts:
    """Return the parts of a feed that has control rows; skips the task where it was never planned."""
    parts = parts_of(feed)
    if parts.control.feed(feed.name) is None:
        raise AirflowSkipException(f"feed {feed.name} was never planned: there is nothing to maintain")
    return parts
