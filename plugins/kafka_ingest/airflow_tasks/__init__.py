"""The tasks of the DAGs: of a feed's, of backfills, and of the daily maintenance. ``dags/`` wires them."""
