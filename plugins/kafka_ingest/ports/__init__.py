"""The calls through which the protocol touches the world, by role: control tables, Kafka, outputs, schemas.

Each call is atomic, so a crash can only happen between two of them. Real parts and the fakes of the tests implement
these protocols and pass the same contract tests.
"""
