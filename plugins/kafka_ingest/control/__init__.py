"""The control tables, behind :mod:`kafka_ingest.ports.control`.

:mod:`.control_tables` puts the stores together. A store has one idea, and each of its methods is one transaction; the
statements that stores share run inside a transaction of theirs. :mod:`.batch_states` alone writes a batch's state,
:mod:`.schema` holds the tables, :mod:`.database` opens them. :mod:`.upgrade` is for ``kafka-ingest db upgrade`` only.
"""
