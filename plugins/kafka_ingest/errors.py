"""Errors, named by cause and grouped by what the caller has to do.

Every message says what was expected, what was found, and what to do next. ``exit_code`` is the command line's;
:mod:`kafka_ingest.airflow_tasks.in_airflow` retries :class:`RetryableError` and fails at once on everything else.
"""

import re
from typing import ClassVar


class KafkaIngestError(Exception):
    """Any failure this project names."""

    exit_code: ClassVar[int] = 1

    @property
    def code(self) -> str:
        """The error's stable name, for ``--json`` and log searches: ``TOPIC_RECREATED``."""
        words = re.findall(r"[A-Z][a-z0-9]*", type(self).__name__.removesuffix("Error"))
        return "_".join(words).upper()


# ── Try again: the same call may succeed later, and nothing was half done. ────────────────────────────────────────────


class RetryableError(KafkaIngestError):
    """Running it again may help."""


class KafkaUnavailableError(RetryableError):
    """Kafka did not answer within the time limit, or refused for a passing reason."""


class ControlTablesUnavailableError(RetryableError):
    """The control database could not be reached, or was locked for longer than the time limit."""


class FeedChangedError(RetryableError):
    """Another process wrote to this feed's control rows between the reading and the writing; nothing was written."""


class SparkFailedError(RetryableError):
    """The Spark application ended without success; its attempt stays invisible."""

    begun: frozenset[int] = frozenset()
    """Which of its attempts, by their places, it was at, or done with; known where there are several."""

    log: str = ""
    """Where all is that it said, if that was kept."""


class SparkExecutorsMissingError(RetryableError):
    """The cluster gave the Spark application no executor within the feed's limit; its attempt stays invisible."""


class InvalidReceiptError(RetryableError):
    """A receipt is missing, damaged, of another plan, attempt or format version; it is not used."""


class SchemaRegistryUnavailableError(RetryableError):
    """No URL of the schema registry answered within the time limit, or all of them failed."""


class SchemaIdsUnknownError(RetryableError):
    """Records begin with schema ids that the registry has not been asked for; the next attempt asks."""


class OutputUnavailableError(RetryableError):
    """The output's storage could not be read or written."""


class JarsUnavailableError(RetryableError):
    """A repository did not deliver a jar that Spark needs."""


class NotPrintedError(RetryableError):
    """What a command answers could not be printed; what it was asked for may be done all the same."""


# ── Plan again: this batch cannot be written as planned; the next run's plan decides what happens to it. ──────────────


class PlanAgainError(KafkaIngestError):
    """Trying the same step again fails again; a new run starts with a plan, which can decide differently."""


class RangeNotInLogError(PlanAgainError):
    """Kafka deleted some of the batch's offsets between the plan and the read."""


class StagedOutputUnusableError(PlanAgainError):
    """The staged files differ from their receipt; the batch went back to PLANNED and will be written again."""


class PartitionUnreadableError(PlanAgainError):
    """Kafka holds a record that no consumer can read, as in a damaged segment, or too large for Spark's memory."""


# ── Wrong use: settings or arguments have to change first. ────────────────────────────────────────────────────────────


class WrongUseError(KafkaIngestError):
    """A setting or an argument is wrong; running it again without a change fails again."""

    exit_code = 2


class InvalidFeedError(WrongUseError):
    """A feed file cannot be used."""


class UnknownFeedError(WrongUseError):
    """No feed file of that name."""


class UnknownTopicError(WrongUseError):
    """A topic of the feed file does not exist and was never read."""


class StartOutsideLogError(WrongUseError):
    """The feed's start names an offset that its log does not hold."""


class EndOutsideLogError(WrongUseError):
    """A manual run was asked to end where its partitions cannot be read to."""


class InvalidRangeError(WrongUseError):
    """An interval of offsets that was named cannot be used."""


class InvalidBackfillError(WrongUseError):
    """A backfill's request cannot be used."""


class InvalidOperationError(WrongUseError):
    """What the form ``operate_feed`` asks for cannot be used."""


class RangesTakenError(WrongUseError):
    """Requested offsets are committed, or another backfill's, and the request does not allow leaving them out."""


class InvalidRunRequestError(WrongUseError):
    """A manual run's request cannot be used."""


class MissingPoolError(WrongUseError):
    """Airflow has no pool of the name that a feed gives."""


class UnknownBatchError(WrongUseError):
    """No batch of that id."""


class BatchFoldedError(WrongUseError):
    """The request needs the ranges of single old batches, and these are folded."""


class InvalidNotifierError(WrongUseError):
    """A notifier that a feed file names is none of Airflow's, or cannot be made with its arguments."""


class MissingConnectionError(WrongUseError):
    """An Airflow connection is not defined."""


class InvalidConnectionError(WrongUseError):
    """An Airflow connection lacks a field, or holds one that has no meaning here."""


class KafkaAccessDeniedError(WrongUseError):
    """Kafka refused the connection's credentials, or they lack a right that is needed."""


class KafkaLoginRefusedError(WrongUseError):
    """Kafka refused the user or the password; trying them again could lock the account."""


class KafkaTlsRefusedError(WrongUseError):
    """The TLS handshake failed: an unknown authority, another host's certificate, or a missing one."""


class SchemaRegistryRefusedError(WrongUseError):
    """The schema registry refused the connection's credentials, or its certificate was refused."""


class SubjectMissingError(WrongUseError):
    """The schema registry has no such subject, or no such version of it."""


class InvalidSchemaError(WrongUseError):
    """A schema cannot be used: it does not parse, or no columns can be made of it."""


class InvalidExpressionError(WrongUseError):
    """Spark refuses an expression of the feed file, or its function ``transform`` does what it may not."""


class SparkOutOfMemoryError(WrongUseError):
    """The heap is too small for the records that are read at once; a retry with the same settings fails again."""


class TooManyTablePartitionsError(WrongUseError):
    """A batch has records of more days or hours than a table is partitioned into by one batch."""


class UnsafeSparkMasterError(WrongUseError):
    """This Spark master would put the Kafka secret on a command line."""


class ControlSchemaError(WrongUseError):
    """The control tables do not exist, or their schema is not the one this version needs."""


class ControlAccessDeniedError(WrongUseError):
    """The control database's role lacks a right that is needed."""


class OutputNotUsableError(WrongUseError):
    """The output's path cannot be used as it is."""


class NotOfThisFormatError(WrongUseError):
    """The output's format does not support this question or operation."""


class NotADataFileError(WrongUseError):
    """A file is not one of the data files that this project writes."""


class NothingToAdoptError(WrongUseError):
    """The output holds nothing that is missing from the control tables."""


class InstallationError(WrongUseError):
    """Something this project needs on the machine is missing or of another version."""


# ── Stop: an operator has to decide; an automatic decision could lose or repeat records. ──────────────────────────────


class OperatorDecisionError(KafkaIngestError):
    """Continuing could lose or duplicate records; an operator has to decide."""

    exit_code = 3


class WrongClusterError(OperatorDecisionError):
    """The brokers belong to another cluster than the feed's stored offsets."""


class TopicGoneError(OperatorDecisionError):
    """A topic or partition with stored offsets does not exist any more."""


class TopicRecreatedError(OperatorDecisionError):
    """A topic has another topic id than the stored offsets (KIP-516): it was deleted and created again."""


class StartUndecidedError(OperatorDecisionError):
    """The feed's only readable topics appeared since the last plan, and nothing proves whether they are new."""


class OffsetsLostError(OperatorDecisionError):
    """Stored offsets are below the log start: retention deleted records that were not read."""


class RecordsDeletedError(OperatorDecisionError):
    """Records that a backfill requests are deleted."""


class StoredOffsetBeyondLogError(OperatorDecisionError):
    """Stored offsets are above the log end: truncation, an unclean election, or another cluster."""


class OutputUnknownError(OperatorDecisionError):
    """The output holds batches that the control tables do not know."""


class OutputElsewhereError(OperatorDecisionError):
    """The feed's relative output is under another root than the one that its batches were published under."""


class ReceiptsDoNotFollowError(OperatorDecisionError):
    """The receipts of an output do not form one complete history."""


class OutputConflictError(OperatorDecisionError):
    """The files to publish do not exist any more, or their target is occupied by something else."""


class BatchRevokedError(OperatorDecisionError):
    """An operator revoked the batch's staged files; the batch still has to be abandoned."""


class OffsetsMovedError(OperatorDecisionError):
    """Stored offsets are no longer equal to the batch's start offsets; none was moved."""


class RefusedBatchError(OperatorDecisionError):
    """What a batch's records became is not what the feed allows; a batch that was written is PLANNED again."""


class TooManyDeadLettersError(RefusedBatchError):
    """More records of a batch cannot be decoded than the feed allows."""


class TooManyFilteredError(RefusedBatchError):
    """More records of a batch were filtered than the feed allows: of its first batch not all."""


class FieldsNeverFoundError(RefusedBatchError):
    """Fields of the schema are in no record of a batch."""


class RecordsFilteredError(RefusedBatchError):
    """A replacement filters more or fewer records than the batches whose rows it replaces."""


class ColumnsChangedError(RefusedBatchError):
    """The columns of a feed's records are not those of the output's files, in a way that the feed does not allow."""


class OffsetsMissingError(OperatorDecisionError):
    """The feed says ``offsets: dense`` and records are missing inside the batch's ranges."""


# ── Refused: this call has no effect, which is correct. ───────────────────────────────────────────────────────────────


class BatchStateError(KafkaIngestError):
    """The batch's state leaves this step nothing to do: another process was first, or an operator ended the batch."""

    exit_code = 2


def may_retry(error: BaseException) -> bool:
    """Whether another try may succeed; of what has no name here that is not known."""
    return isinstance(error, RetryableError) or not isinstance(error, KafkaIngestError)
