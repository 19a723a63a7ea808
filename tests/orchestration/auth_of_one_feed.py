"""Airflow's simple auth manager, except that one of its users may read a single DAG, as with other auth managers."""

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from tests.orchestration.guest import GUEST, MAY_READ


class OneFeedAuthManager(SimpleAuthManager):
    """The user ``guest`` may read the DAG ``orders`` and no other."""

    def is_authorized_dag(self, **asked: Any) -> bool:
        details = asked.get("details")
        if asked["user"].username == GUEST and (details is None or details.id != MAY_READ):
            return False
        return super().is_authorized_dag(**asked)
