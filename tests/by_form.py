"""Requests of the form of ``operate_feed``, as its task gives them to the commands."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from tests.quick_project import QuickProject, closing_clients

from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.verbs import check_feed, preview
from kafka_ingest.verbs.answer import Answer
from kafka_ingest.verbs.check_installation import Check
from kafka_ingest.verbs.operate_form import OperateForm

ALICE = "airflow:alice@operate_feed/manual__1"
DO = {"dry_run": False, "reason": "poisoned by a broken producer"}

Ask = Callable[..., Answer]


@contextmanager
def asking_by_form(quick: QuickProject) -> Iterator[Ask]:
    """Give forms about a project, with what it has in the place of Spark."""

    def asking(
        feed: str | None = "orders", *, actor: str = ALICE, checks: list[Check] | None = None, **form: Any
    ) -> Answer:
        said = checks if checks is not None else []
        form_read = OperateForm.of({"feed": feed, **form})
        return form_read.answer(actor, find_connection_from_shell, said.append)

    of_project = patch.dict(os.environ, quick.environment)
    in_place_of_spark = patch.object(preview, "run_spark_submit", partial(quick.submit, while_running=int))
    in_place_of_driver = patch.object(check_feed, "run_spark_submit", quick.start_driver)
    with of_project, in_place_of_spark, in_place_of_driver, closing_clients():
        yield asking
