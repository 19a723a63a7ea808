"""Alerts: what feeds ask to be notified of, checked every few minutes, notified once as it begins and once as it ends.

1. :mod:`~kafka_ingest.alerting.ask_cluster` asks each cluster once, for all feeds that are read over a connection;
2. :mod:`~kafka_ingest.alerting.rules` decides, of each feed, what is the case, and what is not known: pure;
3. :mod:`~kafka_ingest.alerting.life` compares that with the alerts in the control tables, begins and ends them, and
   lends each notification to one process at a time.

Batches know nothing of all this.
"""
