"""What the table formats share: the roles of a sink whose batches become visible by one commit of a table.

A format brings a :class:`.table_format.TableFormat`: where its files are, what fits, and the one commit that decides.
In the order in which a batch meets them: :mod:`.publisher`, :mod:`.sink` (inspected, removed and replaced).
"""
