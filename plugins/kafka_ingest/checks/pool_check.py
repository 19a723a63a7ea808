"""Whether Airflow has the pool that a feed names: without it tasks wait for ever, as the scheduler's log alone says."""

from sqlalchemy.exc import SQLAlchemyError

from kafka_ingest.errors import MissingPoolError
from kafka_ingest.foundation.counting import counted


def pool(name: str) -> str:
    """Return what Airflow's database says of a pool; raises MissingPoolError where there is none of that name.

    A task may not ask it, and where no Airflow was ever set up, there is nothing to ask.
    """
    from airflow.models.pool import Pool  # noqa: PLC0415 - seconds, and only for feeds that name a pool

    try:
        found = Pool.get_pool(name)
    except (SQLAlchemyError, RuntimeError):
        return f"{name}; Airflow's database cannot be asked for it from here"
    if found is None:
        raise MissingPoolError(
            f"expected a pool {name!r} in Airflow, as airflow.pool says, found none: the feed's tasks would wait for "
            f"ever. Make it: `airflow pools set {name} SLOTS DESCRIPTION`, or correct airflow.pool."
        )
    return f"{name}, {counted(found.slots, 'slot')}"
