"""Where output goes, one file per sink. Spark stages, the commit task publishes without Spark."""
