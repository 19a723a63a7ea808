"""The control tables, behind :mod:`kafka_ingest.ports.control`.

:mod:`.control_tables` puts the stores together. Each store has one purpose, and each of its methods is one transaction;
statements that stores share run inside it. :mod:`.batch_statements` alone writes a batch's state, :mod:`.schema` holds
the tables, :mod:`.database` opens them. :mod:`.upgrade` is for ``kafka-ingest db upgrade`` only.
"""
