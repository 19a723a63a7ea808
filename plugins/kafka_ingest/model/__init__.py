"""The nouns: offsets, batches, receipts, gaps, holds, coverage.

Frozen, without input or output, standard library only.
"""
