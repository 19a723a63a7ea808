"""What any room may use, and that knows neither Kafka nor batches: files, object stores, text, garbage collection."""
