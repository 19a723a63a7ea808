"""Bounded Kafka batches over explicit offset ranges, committed once.

The life of a batch, in reading order. Tasks (:mod:`kafka_ingest.airflow_tasks.feed_tasks`) and the command line
(:mod:`kafka_ingest.cli.run_command`) call the steps by a feed's parts (``FeedParts`` of :mod:`kafka_ingest.assembly`):

1. **plan** (:mod:`kafka_ingest.batches.plan_batch`): read the stored offsets, ask Kafka for its log bounds, decide
   the ranges (:mod:`kafka_ingest.planning.decide`, pure) and record them. The batch is ``PLANNED``.
2. **write** (:mod:`kafka_ingest.write_step`): open an attempt and pass its document to Spark, where
   :mod:`kafka_ingest.writing.write_batch` reads exactly those ranges, stages Parquet files and writes a receipt.
   :mod:`kafka_ingest.batches.pin_receipt` takes the first valid receipt: the batch is ``WRITTEN``.
3. **commit** (:mod:`kafka_ingest.batches.commit_batch`): verify, ``COMMITTING``, publish, move the stored offsets
   in one compare-and-set, ``COMMITTED``; then bring the consumer group to them
   (:mod:`kafka_ingest.batches.mirror_group`).

A backfill is the same life, planned otherwise (:mod:`kafka_ingest.batches.plan_backfill`): its chunks read
below the stored offsets, or into another output, and their commit moves nothing but gaps. A replay's chunks read
dead letters instead of Kafka (:mod:`kafka_ingest.batches.replaying`).
:mod:`kafka_ingest.model.coverage` says where each offset is.

What only an operator decides is in :mod:`~kafka_ingest.verbs`: to abandon a batch, to skip or reset offsets, to
accept a changed topic, to adopt an output, to remove what has expired; ``doctor`` examines an installation.
:mod:`~kafka_ingest.observing` answers questions, and notices what feeds ask to be notified of.

The parts, from the lowest layer up; import-linter holds the order (docs/architecture.md):

- :mod:`~kafka_ingest.errors` and :mod:`~kafka_ingest.foundation`, which know nothing of batches;
  :mod:`~kafka_ingest.foundation.storage` opens places (:mod:`~kafka_ingest.model.place`): paths of disks, and URIs;
- :mod:`~kafka_ingest.model`, the nouns, and :mod:`~kafka_ingest.ports`, the calls through which the protocol touches
  the world;
- :mod:`~kafka_ingest.control`, :mod:`~kafka_ingest.cluster`, :mod:`~kafka_ingest.sinks`,
  :mod:`~kafka_ingest.schemas`, which implement the ports: a database, Kafka,
  the outputs, a schema registry and Protobuf's message types;
- :mod:`~kafka_ingest.planning` (pure), :mod:`~kafka_ingest.spark_launch`, and :mod:`~kafka_ingest.writing`, which runs
  in Spark;
- the protocol: :mod:`~kafka_ingest.batches`. It knows ports only;
- :mod:`~kafka_ingest.settings`, from which :mod:`~kafka_ingest.assembly` puts one feed's parts together;
- :mod:`~kafka_ingest.observing`, which knows ports only, too;
- :mod:`~kafka_ingest.verbs`, what an operator asks for, in a shell or by a form;
- :mod:`~kafka_ingest.airflow_tasks` and :mod:`~kafka_ingest.cli`, which drive them, and :mod:`~kafka_ingest.page`,
  which shows in Airflow what they did.
"""
