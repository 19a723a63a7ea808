"""Bounded Kafka batches over explicit offset ranges, committed once.

The life of a batch, in reading order:

1. **plan** (:mod:`kafka_ingest.batches.plan_batch`): read the stored offsets, ask Kafka for the bounds of its logs, decide
   the ranges (:mod:`kafka_ingest.planning.decide`, pure) and record them. The batch is ``PLANNED``.
2. **write** (:mod:`kafka_ingest.batches.open_attempt`): open an attempt and hand its document to Spark, where
   :mod:`kafka_ingest.writing.write_batch` reads exactly those ranges, stages Parquet files and writes a receipt.
   :mod:`kafka_ingest.batches.pin_receipt` takes the first valid receipt: the batch is ``WRITTEN``.
3. **commit** (:mod:`kafka_ingest.committing.commit_batch`): verify, ``COMMITTING``, publish, move the stored offsets in one
   compare-and-set, ``COMMITTED``; then bring the consumer group to them (:mod:`kafka_ingest.committing.mirror_group`).

A backfill is the same life, planned otherwise (:mod:`kafka_ingest.backfilling.plan_backfill`): its chunks read what lies below
the stored offsets, or into another output, and their commit moves nothing but gaps. :mod:`kafka_ingest.model.coverage` says which
offset is where.

A batch that cannot go on is given up (:mod:`kafka_ingest.operating.abandon`), and what is staged and over is removed
(:mod:`kafka_ingest.operating.clean`).

The nouns are in :mod:`~kafka_ingest.model`; the calls through which the protocol touches the world are
:mod:`~kafka_ingest.ports`, implemented by :mod:`~kafka_ingest.control`, :mod:`~kafka_ingest.cluster` and
:mod:`~kafka_ingest.sinks`. :mod:`~kafka_ingest.assembly` puts one feed's parts together out of its
:mod:`~kafka_ingest.settings`, and :mod:`~kafka_ingest.airflow_tasks` and :mod:`~kafka_ingest.cli` drive them.
"""
