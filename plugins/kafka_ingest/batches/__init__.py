"""The protocol's hub: ask Kafka, record a plan, resume an open batch, open attempts, take receipts."""
