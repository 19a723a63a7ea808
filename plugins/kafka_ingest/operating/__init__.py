"""What only an operator decides: each shows what it would do, does it in one transaction, and is kept in the audit journal."""
