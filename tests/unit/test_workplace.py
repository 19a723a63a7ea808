"""What a spark-submit call gets on this machine: for its own user alone, of any size."""

import stat
from pathlib import Path

from kafka_ingest.model.place import JobSettings
from kafka_ingest.spark_launch.workplace import PACKAGE, SETTINGS, equip, make_workplace, remove_workplace

BUNDLE = "-----BEGIN CERTIFICATE-----\n" * 8_000
"""As large as the certificates that a Linux trusts: the environment takes no text of more than 128 KiB."""


def test_code_and_settings_of_a_call_are_its_users_alone_and_the_job_takes_the_settings_away() -> None:
    settings = JobSettings([{"ssl.truststore.certificates": BUNDLE, "sasl.jaas.config": "hunter2"}], store='{"key": 1}')
    workplace = make_workplace()
    try:
        equip(workplace, b"a zip", settings)

        assert stat.S_IMODE(workplace.stat().st_mode) == 0o700
        assert stat.S_IMODE((workplace / SETTINGS).stat().st_mode) == 0o600
        assert (workplace / PACKAGE).read_bytes() == b"a zip"
        assert JobSettings.take(workplace / SETTINGS) == settings
        assert not (workplace / SETTINGS).exists()
        assert "hunter2" not in repr(settings)
    finally:
        remove_workplace(workplace)


def test_a_log_outside_of_the_workplace_keeps_nothing_in_it(tmp_path: Path) -> None:
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    (workplace / SETTINGS).write_text("a password")

    remove_workplace(workplace, but=tmp_path / "spark.log")

    assert not workplace.exists()
