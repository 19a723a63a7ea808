"""The Compose file cannot be run where the tests run; these hold it to its schema, to the repository and to itself."""

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from sqlalchemy import make_url

from kafka_ingest.settings.connections import control_database, fields_from_json, kafka_settings, spark_master

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yaml"
SCHEMA = Path(__file__).with_name("compose-spec.json")
GUIDE = (ROOT / "docs" / "team-server.md").read_text()
TEXT = FILE.read_text()

REFERENCE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?:(?P<rule>:-|:\?)(?P<rest>[^}]*))?\})")
SECRET = re.compile("PASSWORD|SECRET|KEY")
METRICS = "AIRFLOW_CONN_KAFKA_INGEST_METRICS"
ONE_SHOT = {"volume-owner", "airflow-init"}
SPARK = {"spark-master", "spark-worker"}
AIRFLOW = {"airflow-init", "airflow-api-server", "airflow-scheduler", "airflow-dag-processor"}


def interpolated(value: Any, given: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: interpolated(item, given) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, given) for item in value]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        if match["name"] in given:
            return given[match["name"]]
        assert match["rule"] == ":-", f"{match['name']} is not given"
        return match["rest"]

    return REFERENCE.sub(replacement, value)


def required_variables() -> set[str]:
    return {match["name"] for match in REFERENCE.finditer(TEXT) if match["rule"] == ":?"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    given = {name: f"{number:02}c0ffee" for number, name in enumerate(sorted(required_variables()))}
    return interpolated(yaml.safe_load(TEXT), given)


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Any]:
    return compose["services"]


@pytest.fixture(scope="module")
def dockerfile(services: dict[str, Any]) -> str:
    builds = [service["build"] for service in services.values() if "build" in service]
    assert len(builds) == 1
    return builds[0]["dockerfile_inline"]


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def mounts(service: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for volume in service.get("volumes", []):
        if isinstance(volume, dict):
            yield volume["type"], volume["source"], volume["target"]
        else:
            source, target = volume.split(":")[:2]
            yield "bind" if source.startswith((".", "/")) else "volume", source, target


def conditions(service: dict[str, Any]) -> dict[str, str]:
    return {name: rule["condition"] for name, rule in service.get("depends_on", {}).items()}


def test_the_file_fits_the_compose_schema():
    errors = Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(yaml.safe_load(TEXT))
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_airflow_in_the_image_is_the_pinned_one(dockerfile, pins):
    (image,) = re.findall(r"^FROM apache/airflow:(\S+)$", dockerfile, re.MULTILINE)
    assert image == f"slim-{pins['apache-airflow']}-python3.11"


def test_spark_in_the_image_is_the_pinned_one_because_nothing_else_brings_a_spark(services, dockerfile):
    assert {services[name]["image"] for name in SPARK} == {services["airflow-init"]["image"]}
    assert "pip install --no-cache-dir --requirement requirements.txt" in dockerfile
    assert "spark:" not in dockerfile


def test_the_image_carries_the_projects_own_version(services):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {services[name]["image"] for name in AIRFLOW | SPARK} == {f"kafka-ingest:{version}"}


def test_the_broker_is_the_one_that_the_tests_run():
    ivy = (ROOT / "dev" / "jvm" / "ivy.xml").read_text()
    (broker,) = re.findall(r'name="kafka_2\.13"\s+rev="([^"]+)"', ivy)
    assert yaml.safe_load(TEXT)["services"]["kafka"]["image"].split("@")[0] == f"apache/kafka:{broker}"


def test_every_image_and_every_package_named_beside_the_requirements_has_one_exact_version(services, dockerfile):
    images = [service["image"] for service in services.values()]
    images += re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert all(re.search(r":[\w-]*\d+\.\d+\.?\d*", image) for image in images), images
    assert {image.split(":")[0] for image in images if not re.search(r"@sha256:[0-9a-f]{64}$", image)} == {
        "kafka-ingest",
        "apache/airflow",
    }
    (extra,) = re.findall(r"--requirement requirements.txt (.*)$", dockerfile, re.MULTILINE)
    assert re.fullmatch(r"apache-airflow-providers-fab==[\d.]+", extra)


def test_what_a_service_waits_for_exists_and_can_come_true(services):
    for name, service in services.items():
        for other, condition in conditions(service).items():
            assert other in services, f"{name} waits for {other}"
            if condition == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for the health of {other}"
            else:
                assert condition == ("service_completed_successfully" if other in ONE_SHOT else "service_started")


def test_volumes_configs_and_networks_are_declared_and_used(compose, services):
    used = {source for service in services.values() for kind, source, _ in mounts(service) if kind == "volume"}
    assert used == set(compose["volumes"])
    named = {config["source"] for service in services.values() for config in service.get("configs", [])}
    assert named == set(compose["configs"])
    # One network: with two, a driver would have two addresses and might give executors the wrong one.
    assert all("networks" not in service for service in services.values())
    assert "networks" not in compose


def test_services_that_stay_up_are_watched_restarted_and_do_not_fill_the_disk_with_logs(services):
    for name in services.keys() - ONE_SHOT:
        assert services[name]["restart"] == "unless-stopped", name
        assert services[name]["healthcheck"]["test"], name
        assert services[name]["logging"]["driver"] == "local", name
    for name in ONE_SHOT:
        assert services[name].get("restart", "no") == "no", name


def test_tasks_can_start_only_on_a_migrated_database_and_commit_without_kafka_and_spark(services):
    for name in AIRFLOW - ONE_SHOT:
        assert conditions(services[name])["airflow-init"] == "service_completed_successfully"
    assert conditions(services["airflow-init"])["volume-owner"] == "service_completed_successfully"
    assert conditions(services["airflow-scheduler"])["kafka"] == "service_started"


def test_the_output_is_at_one_place_for_airflow_and_for_spark(services):
    for name in (AIRFLOW | SPARK) - {"spark-master"}:  # the master touches no data
        place = services[name]["environment"]["KAFKA_INGEST_DATA"]
        assert ("volume", "data", place) in list(mounts(services[name])), name
        assert place == "/data", name


def test_who_stages_files_and_who_publishes_them_are_one_user_that_owns_the_volumes(services, dockerfile):
    assert {services[name]["user"] for name in AIRFLOW | SPARK} == {"50000:0"}
    owner = services["volume-owner"]
    command, user, *places = owner["entrypoint"]
    assert (command, user, owner["user"]) == ("chown", "50000:0", "0:0")
    written = {target for name in AIRFLOW | SPARK for kind, _, target in mounts(services[name]) if kind == "volume"}
    assert set(places) == written == {target for _, _, target in mounts(owner)}
    assert all("--chown=50000:0" in line for line in copies(dockerfile))


def test_folders_of_this_machine_are_in_the_repository_and_a_mistyped_one_is_refused(services):
    for service in services.values():
        for volume in service.get("volumes", []):
            if isinstance(volume, dict):
                assert volume["bind"]["create_host_path"] is False
        for kind, source, _ in mounts(service):
            assert kind == "volume" or (ROOT / source).is_dir(), source


def test_the_feed_files_are_where_the_package_looks_for_them(services):
    for name in AIRFLOW:
        folder = services[name]["environment"]["KAFKA_INGEST_FEEDS"]
        assert ("bind", "./dags/feeds", folder) in list(mounts(services[name])), name


def copies(dockerfile: str) -> list[str]:
    return [line for line in dockerfile.splitlines() if line.startswith("COPY") and "--from" not in line]


def test_what_the_image_copies_is_in_the_repository_and_keeps_its_layout(dockerfile):
    copied = set()
    for line in copies(dockerfile):
        *sources, target = line.split()[2:]
        for source in sources:
            assert (ROOT / source).exists(), source
            assert target in {source, "./"}, line
            copied.add(source)
    extras = {each.name for each in ROOT.glob("requirements-*.txt")} - {"requirements-dev.txt", "requirements-docs.txt"}
    assert {"plugins", "jobs", "dags", "requirements.txt", "pyproject.toml"} | extras == copied
    assert "WORKDIR /opt/kafka_ingest" in dockerfile


def test_the_image_has_every_sink_format_and_store_with_its_jars(dockerfile):
    [named] = re.findall("for extra in (.*); do", dockerfile)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(named.split()) == set(extras)
    assert "ENV KAFKA_INGEST_JARS=/opt/kafka_ingest/.jvm" in dockerfile
    assert "&& kafka-ingest jars s3 gcs azure" in dockerfile


def test_no_service_takes_all_memory_of_the_machine(services):
    assert [name for name in services.keys() - ONE_SHOT if "mem_limit" not in services[name]] == []


def test_airflow_finds_the_dags_and_the_plugins_where_the_image_has_them(services):
    for name in AIRFLOW:
        assert services[name]["environment"]["AIRFLOW__CORE__DAGS_FOLDER"] == "/opt/kafka_ingest/dags"
        assert services[name]["environment"]["AIRFLOW__CORE__PLUGINS_FOLDER"] == "/opt/kafka_ingest/plugins"


def test_no_secret_has_a_default_and_none_is_written_down():
    secrets = [match for match in REFERENCE.finditer(TEXT) if match["name"] and SECRET.search(match["name"])]
    escaped = {"AIRFLOW_ADMIN_PASSWORD"}  # read again by a shell in a container, from its environment
    assert {match["name"] for match in secrets} >= {"POSTGRES_PASSWORD", "AIRFLOW_FERNET_KEY"} | escaped
    assert {match["rule"] for match in secrets} == {":?"}
    for name, service in yaml.safe_load(TEXT)["services"].items():
        for key, value in service.get("environment", {}).items():
            is_written = SECRET.search(key) and not key.endswith("__FILE") and not REFERENCE.fullmatch(value)
            assert not is_written, f"{name}: {key}"


def test_every_variable_has_a_default_or_is_required():
    assert {match["rule"] for match in REFERENCE.finditer(TEXT) if match["name"]} == {":-", ":?"}


def test_services_hold_no_secret_that_they_do_not_need(services):
    for name in SPARK | {"kafka", "volume-owner"}:
        assert not any(SECRET.search(key) for key in services[name].get("environment", {})), name
    for name in AIRFLOW - {"airflow-init"}:
        environment = services[name]["environment"]
        assert "AIRFLOW_ADMIN_PASSWORD" not in environment
        assert "POSTGRES_PASSWORD" not in environment


def test_the_guide_makes_exactly_the_variables_that_are_required():
    (block,) = re.findall(r"cat > \.env <<EOF\n(.*?)EOF", GUIDE, re.DOTALL)
    assert {line.split("=")[0] for line in block.splitlines()} == required_variables()


def test_the_guide_names_every_other_variable():
    optional = {match["name"] for match in REFERENCE.finditer(TEXT) if match["rule"] == ":-"}
    assert optional == {name for name in optional if f"`{name}`" in GUIDE}


def test_the_guide_speaks_of_services_that_there_are(services):
    named = set(re.findall(r"docker compose exec (?:-T )?(\S+)", GUIDE))
    assert named
    assert named <= services.keys() - ONE_SHOT


def test_the_connections_lead_to_the_services_beside_them(services):
    environment = services["airflow-scheduler"]["environment"]

    def connection(conn_id: str) -> Any:
        return fields_from_json(conn_id, environment[f"AIRFLOW_CONN_{conn_id.upper()}"])

    advertised = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    bootstrap = kafka_settings(connection("kafka_default")).java_settings()["bootstrap.servers"]
    assert f"INTERNAL://{bootstrap}," in advertised
    assert spark_master(connection("spark_default")).master == "spark://spark-master:7077"
    assert services["spark-worker"]["command"][-1] == "spark://spark-master:7077"
    assert control_database(connection("kafka_ingest")).url.host == "postgres"


def test_airflow_and_the_control_tables_have_a_database_and_a_user_each_and_the_script_makes_them(compose, services):
    environment = services["airflow-scheduler"]["environment"]
    metadata = make_url(environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    control = control_database(fields_from_json("kafka_ingest", environment["AIRFLOW_CONN_KAFKA_INGEST"])).url
    assert (metadata.username, metadata.database) != (control.username, control.database)
    assert metadata.username != control.username
    assert metadata.password != control.password
    script = compose["configs"]["databases"]["content"]
    postgres = services["postgres"]["environment"]
    for url, variable in ((metadata, "AIRFLOW_DB_PASSWORD"), (control, "KAFKA_INGEST_DB_PASSWORD")):
        assert url.password == postgres[variable]
        assert f"\\getenv {url.username}_password {variable}" in script
        assert f"CREATE ROLE {url.username} LOGIN PASSWORD :'{url.username}_password';" in script
        assert f"CREATE DATABASE {url.database} OWNER {url.username};" in script
    assert f"REVOKE CONNECT ON DATABASE {metadata.database}, {control.database} FROM PUBLIC;" in script


def test_airflows_database_driver_is_one_that_is_installed_for_both_of_its_engines(services, pins):
    environment = services["airflow-scheduler"]["environment"]
    metadata = environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert make_url(metadata).drivername == "postgresql+psycopg"
    assert environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"] == metadata
    assert "psycopg[binary]" in pins


def test_every_airflow_setting_is_one_that_airflow_has(services):
    spec = find_spec("airflow")
    assert spec is not None
    assert spec.origin is not None
    options = Path(spec.origin).parent / "config_templates" / "config.yml"
    known = yaml.load(options.read_text(), Loader=yaml.CSafeLoader)
    settings = {key for name in AIRFLOW for key in services[name]["environment"] if key.startswith("AIRFLOW__")}
    assert len(settings) > 10
    for setting in settings:
        _, section, option = setting.split("__")
        assert option.lower() in known[section.lower()]["options"], setting


def test_every_airflow_component_has_the_same_settings(services):
    shared = services["airflow-dag-processor"]["environment"]
    for name in AIRFLOW:
        assert shared.items() <= services[name]["environment"].items(), name
    assert shared["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://airflow-api-server:8080/execution/"


def test_airflows_users_do_not_come_from_the_manager_that_keeps_passwords_in_clear_text(services, dockerfile):
    manager = services["airflow-api-server"]["environment"]["AIRFLOW__CORE__AUTH_MANAGER"]
    assert manager.startswith("airflow.providers.fab.")
    assert "apache-airflow-providers-fab==" in dockerfile


def test_executors_find_the_driver_by_the_name_of_the_container_that_runs_it(services):
    scheduler = services["airflow-scheduler"]
    assert scheduler["hostname"] == scheduler["environment"]["SPARK_LOCAL_HOSTNAME"] == "airflow-scheduler"


def test_ports_are_open_on_the_machine_itself_only(services):
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_a_topic_is_never_made_by_asking_for_it_and_one_broker_is_enough_for_kafkas_own(services):
    kafka = services["kafka"]["environment"]
    assert kafka["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    counts = {key: value for key, value in kafka.items() if key.endswith(("REPLICATION_FACTOR", "MIN_ISR"))}
    assert len(counts) == 5
    assert set(counts.values()) == {"1"}
    assert ("volume", "kafka", kafka["KAFKA_LOG_DIRS"]) in list(mounts(services["kafka"]))


def test_postgresql_keeps_its_data_in_the_volume_and_not_in_the_container(services):
    major = int(services["postgres"]["image"].split(":")[1].split(".")[0])
    assert major >= 18
    assert list(mounts(services["postgres"])) == [("volume", "postgres", "/var/lib/postgresql")]


def test_prometheus_and_grafana_are_started_only_if_they_are_asked_for(services):
    optional = {name for name, service in services.items() if "profiles" in service}
    assert optional == {"prometheus", "grafana"}
    assert {tuple(services[name]["profiles"]) for name in optional} == {("monitoring",)}
    assert not any(conditions(service).keys() & optional for service in services.values())


def test_prometheus_finds_the_metrics_its_token_and_its_rules_and_grafana_finds_both(compose, services):
    def targets(name: str) -> dict[str, PurePosixPath]:
        return {each["source"]: PurePosixPath(each["target"]) for each in services[name]["configs"]}

    def content(name: str) -> Any:
        config = compose["configs"][name]
        return yaml.safe_load(config.get("content") or (ROOT / config["file"]).read_text())

    prometheus, grafana = targets("prometheus"), targets("grafana")
    settings = content("prometheus")
    [scraped] = settings["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": ["airflow-api-server:8080"]}]
    [secret] = services["prometheus"]["secrets"]
    assert scraped["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    variable = compose["secrets"][secret]["environment"]
    assert f"${{{variable}:-}}" in yaml.safe_load(TEXT)["services"]["airflow-api-server"]["environment"][METRICS]
    assert [name for name, service in services.items() if METRICS in service.get("environment", {})] == [
        "airflow-api-server"
    ]
    [rules] = settings["rule_files"]
    assert prometheus["prometheus"].parent / rules == prometheus["prometheus-alerts"]
    assert services["prometheus"]["command"][0] == f"--config.file={prometheus['prometheus']}"

    [provider] = content("grafana-provider")["providers"]
    assert PurePosixPath(provider["options"]["path"]) == grafana["grafana-dashboard"].parent
    [source] = content("grafana-datasource")["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    [secret] = services["grafana"]["secrets"]
    assert services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"] == f"/run/secrets/{secret}"
    for each in compose["secrets"].values():
        assert f"{each['environment']}=$(openssl rand" in GUIDE
