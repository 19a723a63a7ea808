"""What runs inside Spark: read exactly the plan's ranges, stage the files, write the receipt. Knows no database."""
