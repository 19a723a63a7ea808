"""What lies in an attempt's directory: the names that both sides of the hand-over use."""

DOCUMENT = "plan.json"
PACKAGE = "kafka_ingest.zip"
DATA = "data"
RECEIPT = "receipt.json"
