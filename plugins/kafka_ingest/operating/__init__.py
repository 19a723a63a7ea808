"""What only an operator decides: each is done in one transaction, and kept in the audit journal with who and why."""
