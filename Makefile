# Every verb sets up what it needs first, and only what is missing (dev/setup.mk); one make at a time does so.

PYTHON ?= python3
# One file of tests at a time in each of some processes; WORKERS=3 says how many. Files that share a Spark go to one of
# them, and those that take longest come first, so that none ends long before the others (tests/conftest.py).
# Four keep two idle processors busy (98 %): much of it is waiting, for Java or for Airflow. Each finds all tests first,
# which is a tenth of what the quick ones take, so these have two.
test: WORKERS ?= 4
test-quick: WORKERS ?= 2
# Where a process crashes, xdist 3.8 may wait for ever for what it was to do: the run ends there.
PYTEST = .venv/bin/python -m pytest --numprocesses $(WORKERS) --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
ARGS ?=
SINK ?= parquet
KAFKA_VERSION ?= 4.3.1
SET_UP = +@flock --nonblock Makefile true || echo 'Another make is setting up: waiting for it.'; \
	flock Makefile $(MAKE) --silent --no-print-directory --file dev/setup.mk PYTHON=$(PYTHON)

# Airflow imports thousands of modules; without its bytecode cached it does so from source in every process.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-s3 setup-gcs setup-azure setup-kafka demo try-tutorial try-kerberos try-hosts try-kubernetes test-quick test lint format dist matrix docs bench bench-quick bench-plan bench-coverage \
	bench-history bench-table-history bench-postgresql bench-airflow bench-page bench-feeds bench-feeds-due bench-fleet bench-fleet-plan soak up down clean

help: ## list these verbs
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'PYTHON=python3.12 make ... names another interpreter; make test ARGS="-k offsets" hands arguments to pytest.'

setup: ## install what runs, into .venv and .jvm
	$(SET_UP) run jvm
	@echo 'Set up: .venv and .jvm are complete.'

setup-s3: ## install besides what tables in S3 need, for Python and for Spark
	$(SET_UP) run jvm s3
	@echo 'Set up: feeds may write to s3://...'

setup-gcs: ## install besides what tables in Google Cloud Storage need, for Python and for Spark
	$(SET_UP) run jvm gcs
	@echo 'Set up: feeds may write to gs://...'

setup-azure: ## install besides what tables in Azure Data Lake Storage need, for Python and for Spark
	$(SET_UP) run jvm azure
	@echo 'Set up: feeds may write to abfss://...'

setup-kafka: ## install an embedded broker of KAFKA_VERSION=3.9.1 or another; tests with the same variable run on it
	$(SET_UP) run jvm
	@.venv/bin/python dev/resolve_jvm.py --ivy-file dev/jvm/broker.xml --target .jvm/kafka-$(KAFKA_VERSION) \
		--configurations broker --set kafka.version=$(KAFKA_VERSION)

demo: ## run one feed end to end, with a Kafka of its own, and explain what happens; SINK=delta, iceberg, postgresql or kafka
	$(SET_UP) run jvm $(patsubst %,.venv/.stamp-%,$(subst postgresql,dev,$(filter delta iceberg postgresql,$(SINK))))
	@.venv/bin/python dev/demo.py $(SINK)

try-tutorial: ## run each command of docs/tutorial.md as written, on a Kafka of its own; two minutes
	$(SET_UP) run jvm .venv/.stamp-delta
	@.venv/bin/python dev/try_tutorial.py

try-kerberos: ## run a feed with a KDC of Debian's krb5-kdc; CLIENT=FOLDER has a librdkafka that knows Kerberos
	$(SET_UP) run jvm
	@PYTHONPATH=plugins:dev .venv/bin/python dev/try_kerberos.py $(CLIENT)

try-hosts: ## run a feed on a standalone cluster of network namespaces without a shared disk, as root; a quarter of an hour
	$(SET_UP) dev jvm s3
	@PYTHONPATH=plugins:dev .venv/bin/python dev/try_hosts.py

try-kubernetes: ## run a feed on a real API server of Kubernetes whose nodes are a stand-in, as root; half an hour
	$(SET_UP) dev jvm s3 kubernetes
	@PYTHONPATH=plugins:dev .venv/bin/python dev/try_kubernetes.py .kubernetes

test-quick: ## run the tests that start no JVM and no server, and say what is left out; one to two minutes
	$(SET_UP) dev jvm
	$(PYTEST) --quick $(ARGS)

test: ## run all tests; 15 to 30 minutes on two idle processors
	$(SET_UP) dev jvm s3 gcs azure azurite s3-server rest-catalog schema-registry tables chromium
	$(PYTEST) $(ARGS)

lint: ## check style, formatting, types and the direction of imports
	$(SET_UP) dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

format: ## format the code and mend what can be mended
	$(SET_UP) dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

dist: ## build the wheel and its bill of materials into dist/: the same sources give the same bytes
	$(SET_UP) run
	rm -rf dist build && mkdir dist
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-315532800} .venv/bin/uv build --quiet --system-certs --wheel --out-dir dist
	rm -rf build dist/.gitignore
	PYTHONPATH=plugins .venv/bin/python dev/sbom.py dist/*.whl
	cd dist && sha256sum *

matrix: dist ## take the wheel and a topic through environments of other Pythons, Airflows, Sparks and Javas; 5 minutes each
	$(SET_UP) dev jvm
	@PYTHONPATH=plugins:dev .venv/bin/python dev/matrix.py $(ARGS)

docs: ## build the site of the documents into .local/site/html, with search; a broken link fails
	$(SET_UP) run
	rm -rf .local/site && mkdir -p .local/site/pages/bench
	cp -R docs README.md CHANGELOG.md SECURITY.md .local/site/pages
	cp bench/README.md bench/*.png .local/site/pages/bench
	.venv/bin/uv run --quiet --no-project --isolated --system-certs --with-requirements requirements-docs.txt \
		mkdocs build --strict
	@echo 'Built: .local/site/html/index.html'

bench: ## compare with AvailableNow, Spark batch, Flink and a script on the same records; an hour or more, some GB of disk
	$(SET_UP) dev jvm s3 tables flink
	@PYTHONPATH=plugins:dev .venv/bin/python bench/against_peers.py $(ARGS)

bench-quick: ## the same with fewer records, twice each; five to ten minutes
	$(SET_UP) dev jvm s3 tables flink
	@PYTHONPATH=plugins:dev .venv/bin/python bench/against_peers.py --quick $(ARGS)

bench-plan: ## measure planning for feeds of up to 10,000 partitions, on a Kafka of its own; minutes
	$(SET_UP) dev jvm
	@PYTHONPATH=plugins:dev .venv/bin/python bench/plan_partitions.py $(ARGS)

bench-coverage: ## measure asking about a feed with years of history; minutes, and some GB of disk for so long
	$(SET_UP) dev
	@PYTHONPATH=plugins:dev .venv/bin/python bench/coverage_of_years.py $(ARGS)

bench-history: ## measure what a feed's runs and questions take after years of batches; some minutes, some GB of disk
	$(SET_UP) dev jvm
	@PYTHONPATH=plugins:dev .venv/bin/python bench/history_of_years.py $(ARGS)

bench-table-history: ## measure what publishing into a Delta or Iceberg table takes after a year of batches; minutes
	$(SET_UP) dev jvm
	@PYTHONPATH=plugins:dev:bench .venv/bin/python bench/table_of_years.py $(ARGS)

bench-postgresql: ## measure writing the same rows into PostgreSQL, beside psycopg, Spark and Flink; ten minutes
	$(SET_UP) dev jvm postgresql-peers flink
	@PYTHONPATH=plugins:dev:bench .venv/bin/python bench/into_postgresql.py $(ARGS)

bench-airflow: ## measure what a run in Airflow takes above `kafka-ingest run`, on an Airflow of its own; some minutes
	$(SET_UP) dev jvm
	@PYTHONPATH=plugins:dev .venv/bin/python bench/in_airflow.py $(ARGS)

bench-page: ## measure the page's views with 2,000 feeds, 10,000 partitions and 100,000 batches; a minute
	$(SET_UP) dev
	@PYTHONPATH=plugins:dev:bench .venv/bin/python bench/page_of_many_feeds.py $(ARGS)

bench-feeds: ## measure reading DAG files, task starts and the command line with up to 2,000 feeds; some minutes
	$(SET_UP) dev jvm
	@PYTHONPATH=plugins:dev .venv/bin/python bench/many_feeds.py $(ARGS)

bench-feeds-due: ## measure how many feeds a minute a scheduler works off, on an Airflow of its own; up to an hour
	$(SET_UP) dev jvm
	@PYTHONPATH=plugins:dev .venv/bin/python bench/feeds_due.py $(ARGS)

bench-fleet: ## measure 500 small topics that are due at once: a fleet in Airflow, its command, AvailableNow, a script
	$(SET_UP) dev jvm
	@PYTHONPATH=plugins:dev:bench .venv/bin/python bench/fleet_due.py $(ARGS)

bench-fleet-plan: ## measure the plan of fleets of 1,000 and 2,000 feeds, idle and with new records; some minutes
	$(SET_UP) dev jvm
	@PYTHONPATH=plugins:dev .venv/bin/python bench/plan_fleet.py $(ARGS)

soak: ## 15 minutes of a live producer, scheduled runs and kill -9 at random, then every record is compared
	$(SET_UP) run jvm
	@.venv/bin/python dev/soak.py $(ARGS)

up: ## start Kafka, a trickle of events and Airflow, to try things out
	$(SET_UP) run jvm
	@.venv/bin/python dev/playground.py up

down: ## stop what `make up` started; its data stays
	@if [ -d .local/up ]; then .venv/bin/python dev/playground.py down; else echo 'Nothing to stop.'; fi

clean: down ## remove the playground's data and the tools' caches; .venv and .jvm stay
	rm -rf .local .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log
