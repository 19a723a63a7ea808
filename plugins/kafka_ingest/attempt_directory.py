"""The names that both sides of the hand-over to Spark use: what lies in an attempt's directory, and one variable."""

DOCUMENT = "plan.json"
PACKAGE = "kafka_ingest.zip"
DATA = "data"
DATA_PUBLISHED = "data.published"
DATA_REVOKED = "data.revoked"
RECEIPT = "receipt.json"
FAILURE = "failure.txt"

KAFKA_SETTINGS_VARIABLE = "KAFKA_INGEST_KAFKA_SETTINGS"
"""The Java client's settings as JSON. An environment variable, because arguments and conf are seen by everybody."""
