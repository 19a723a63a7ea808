"""Hand a batch to Spark, and take its receipt back."""
