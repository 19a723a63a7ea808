"""Where output goes: a folder per format, and what they share. Spark stages, the commit publishes without Spark."""
