"""The page "Kafka offsets" in Airflow: it shows what is stored and what Kafka answers, and changes nothing."""
