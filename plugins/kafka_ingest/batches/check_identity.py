"""Whether a batch's offsets still mean the same records."""

from kafka_ingest.model.batch import Batch
from kafka_ingest.model.identity import check_cluster, check_topic_ids
from kafka_ingest.ports.cluster import KafkaCluster


def check_identity(batch: Batch, kafka: KafkaCluster) -> None:
    """Ask Kafka; raise WrongClusterError, TopicGoneError or TopicRecreatedError unless all ids are as planned.

    A batch that does not read Kafka has nothing to ask: its topics may be gone.
    """
    plan = batch.plan
    if not plan.kind.reads_kafka:
        return
    # After Spark the client is new, and asking for the cluster's id first would take 50 ms.
    described = kafka.describe_topics(plan.topic_ids.keys())
    check_cluster(plan.cluster_id, kafka.cluster_id(), batch.feed_name)
    check_topic_ids(plan.topic_ids, described, batch.feed_name)
