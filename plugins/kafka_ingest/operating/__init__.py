"""What only an operator decides: each is done in one transaction, and kept in the audit journal with who and why.

To remove expired staging data (:mod:`.clean`) and to replace old control rows by sums (:mod:`.fold`) are decided once,
in the feed file; `maintain_feeds` then does them every day.
"""
