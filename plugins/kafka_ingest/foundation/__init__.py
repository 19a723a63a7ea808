"""What any room may use, and that knows neither Kafka nor batches: durable files, storable text, garbage collection."""
