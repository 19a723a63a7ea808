"""What the steps of a batch touch, as one value."""

from typing import Protocol

from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sinks


class Parts(Protocol):
    """One feed's control tables and Kafka, and the sinks of outputs: made once, and passed from step to step."""

    @property
    def control(self) -> OperatorTables:
        """The control tables."""

    @property
    def kafka(self) -> KafkaCluster:
        """The questions asked of Kafka."""

    @property
    def sinks(self) -> Sinks:
        """Finds the sink of an output."""
