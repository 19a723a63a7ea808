"""The control tables of version 0.1.0, the first that is upgraded for ever. Earlier ones are refused."""

revision = "0018"
down_revision = None


def upgrade() -> None:
    """Do nothing: where there are no tables yet, they are made as they are now."""
