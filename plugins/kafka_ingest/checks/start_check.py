"""Whether anything looks at what waits for feeds with start_when: the triggerer, or the DAG check_feeds."""

from sqlalchemy.exc import SQLAlchemyError

from kafka_ingest.errors import InstallationError

CHECKING_DAG = "check_feeds"


def looked_at() -> str:
    """Return what looks at waiting records; raises InstallationError where nothing does.

    A task may not ask Airflow's database, and where no Airflow was ever set up, there is nothing to ask.
    """
    from airflow.jobs.job import most_recent_job  # noqa: PLC0415 - seconds, and only for feeds that say start_when
    from airflow.models.dag import DagModel  # noqa: PLC0415
    from airflow.utils.session import create_session  # noqa: PLC0415

    try:
        with create_session() as session:
            triggerer = most_recent_job("TriggererJob", session=session)
            is_alive = triggerer is not None and triggerer.is_alive()
            dag = session.get(DagModel, CHECKING_DAG)
            is_on = dag is not None and not dag.is_paused and not dag.is_stale
    except (SQLAlchemyError, RuntimeError):
        return "Airflow's database cannot be asked from here what looks at waiting records"
    if not is_alive and not is_on:
        raise InstallationError(
            f"expected a triggerer that runs, or the DAG {CHECKING_DAG} switched on, since the feed's file says "
            "start_when; found neither: its schedule alone starts it. Start `airflow triggerer`, or run "
            f"`airflow dags unpause {CHECKING_DAG}`"
        )
    # The triggerer looks from Airflow 3.3 on, every few seconds; the DAG on each of its runs.
    return " and ".join(["a triggerer"] * is_alive + [f"the DAG {CHECKING_DAG}"] * is_on)
