"""Start Spark: the spark-submit call, and what its exit means."""
