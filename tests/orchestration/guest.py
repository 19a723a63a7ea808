"""A user of Airflow who may read a single DAG; apart from the auth manager, which takes long to import."""

GUEST, MAY_READ = "guest", "orders"
