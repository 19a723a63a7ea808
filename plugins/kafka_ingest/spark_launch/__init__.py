"""Start Spark: what to hand to spark-submit, and what its end means."""
