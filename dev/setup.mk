# What the Makefile's verbs need: `run` and `dev` in .venv, `jvm` in .jvm, `flink` in .flink. A stamp, written last,
# says that it is there.

PYTHON ?= python3
UV_VERSION := 0.13.8
FLINK_VERSION := 2.3.0
AZURITE_VERSION := 3.37.0
AZURITE_DATE := 2026-11-20
# The machine's own certificates, as pip and Java use them: a company's proxy may sign with its own.
INSTALL := .venv/bin/uv pip install --python .venv/bin/python --system-certs

.PHONY: run dev jvm s3 gcs azure azurite s3-server rest-catalog schema-registry tables postgresql-peers chromium flink kubernetes
run: .venv/.stamp-run
dev: .venv/.stamp-dev
# A look whether an archive fits is cheaper than a stamp that knows when Java, its jars or their places change.
jvm: .jvm/.stamp
	.venv/bin/python dev/link_jars.py
	.venv/bin/python dev/archive_broker.py
	.venv/bin/python dev/archive_classes.py

.venv/.stamp-run: requirements.txt pyproject.toml
	command -v $(PYTHON) >/dev/null || { \
		echo 'Python: expected 3.11 or later, found no $(PYTHON) on the PATH.' >&2; \
		echo '  Install it, or name another one: PYTHON=python3.12 make setup' >&2; exit 1; }
	$(PYTHON) dev/check_machine.py
	echo 'Installing requirements.txt into .venv'
	.venv/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(INSTALL) --requirement requirements.txt
	$(INSTALL) --no-deps --editable .
	touch $@

.venv/.stamp-dev: requirements-dev.txt requirements-azure.txt requirements-delta.txt requirements-gcs.txt \
		requirements-iceberg.txt requirements-msk.txt requirements-openlineage.txt requirements-postgresql.txt \
		requirements-protobuf.txt requirements-s3.txt .venv/.stamp-run
	echo 'Installing requirements-dev.txt into .venv'
	$(INSTALL) --requirement requirements.txt --requirement requirements-dev.txt
	touch $@

# What a sink or a format needs on top: .venv/.stamp-delta, .venv/.stamp-iceberg, .venv/.stamp-postgresql, …
.venv/.stamp-%: requirements-%.txt .venv/.stamp-run
	echo 'Installing $< into .venv'
	$(INSTALL) --requirement requirements.txt --requirement $<
	touch $@

# The environment is needed for the Ivy inside pyspark; a newer one is no reason to resolve again.
.jvm/.stamp: dev/jvm/ivy.xml dev/jvm/ivysettings.xml | .venv/.stamp-run
	$(PYTHON) dev/check_machine.py
	rm -f $@
	.venv/bin/python dev/resolve_jvm.py
	touch $@

# Only feeds whose output is in that store need it, tests of those, and for S3 `make bench`, which writes tables there.
s3: .jvm/.stamp-s3
gcs: .jvm/.stamp-gcs
azure: .jvm/.stamp-azure

OF_TABLES := requirements-delta.txt requirements-iceberg.txt

OF_STORES := .jvm/.stamp-s3 .jvm/.stamp-gcs .jvm/.stamp-azure

$(OF_STORES): .jvm/.stamp-%: dev/jvm/%.xml dev/jvm/ivysettings.xml requirements-%.txt $(OF_TABLES) | .venv/.stamp-run
	$(PYTHON) dev/check_machine.py
	rm -f $@
	echo 'Installing requirements-$*.txt $(OF_TABLES) into .venv'
	$(INSTALL) --requirement requirements.txt --requirement requirements-$*.txt $(addprefix --requirement ,$(OF_TABLES))
	.venv/bin/python dev/resolve_jvm.py --ivy-file dev/jvm/$*.xml --configurations $*
	touch $@

# How Spark itself reads and writes tables: tests open ours with it, and `make bench` compares with it.
tables: .jvm/.stamp-tables

.jvm/.stamp-tables: dev/jvm/tables.xml dev/jvm/ivysettings.xml | .venv/.stamp-run
	$(PYTHON) dev/check_machine.py
	rm -f $@
	.venv/bin/python dev/resolve_jvm.py --ivy-file dev/jvm/tables.xml --configurations delta iceberg
	touch $@

# How Spark and Flink write to PostgreSQL: `make bench-postgresql` compares with them.
postgresql-peers: .jvm/.stamp-postgresql-peers

.jvm/.stamp-postgresql-peers: dev/jvm/postgresql.xml dev/jvm/ivysettings.xml | .venv/.stamp-run
	$(PYTHON) dev/check_machine.py
	rm -f $@
	.venv/bin/python dev/resolve_jvm.py --ivy-file dev/jvm/postgresql.xml --configurations postgresql flink-jdbc
	touch $@

# Only tests need it.
s3-server: .jvm/.stamp-s3-server

.jvm/.stamp-s3-server: dev/jvm/s3_server.xml dev/jvm/ivysettings.xml | .jvm/.stamp
	rm -f $@
	.venv/bin/python dev/resolve_jvm.py --ivy-file dev/jvm/s3_server.xml --configurations s3-server
	touch $@

# Only tests need it.
rest-catalog: .jvm/.stamp-rest-catalog

.jvm/.stamp-rest-catalog: dev/jvm/rest_catalog.xml dev/jvm/ivysettings.xml | .jvm/.stamp
	rm -f $@
	.venv/bin/python dev/resolve_jvm.py --ivy-file dev/jvm/rest_catalog.xml --configurations rest-catalog
	touch $@

# Only tests need it.
schema-registry: .jvm/.stamp-schema-registry

.jvm/.stamp-schema-registry: dev/jvm/schema_registry.xml dev/jvm/ivysettings.xml | .jvm/.stamp
	rm -f $@
	.venv/bin/python dev/resolve_jvm.py --ivy-file dev/jvm/schema_registry.xml --configurations schema-registry
	touch $@

# Only a trial needs it: API server and etcd, and the provider that Airflow's hook asks for.
kubernetes: .kubernetes/.stamp

.kubernetes/.stamp: dev/build_kubernetes.py dev/setup.mk | .venv/.stamp-dev
	.venv/bin/python dev/build_kubernetes.py .kubernetes
	$(INSTALL) --target .kubernetes/python --no-deps apache-airflow-providers-cncf-kubernetes==10.25.0 \
		durationpy==0.11 kubernetes==37.0.2 kubernetes-asyncio==36.1.0 websocket-client==1.9.2
	touch $@

# Only tests need it. npm comes with requirements-dev.txt; what Azurite needs itself is as old as this version of it.
azurite: .azurite/.stamp

.azurite/.stamp: dev/setup.mk | .venv/.stamp-dev
	rm -rf .azurite
	mkdir .azurite
	echo 'Installing Azurite $(AZURITE_VERSION), a server for tests, into .azurite'
	NODE_OPTIONS="$$NODE_OPTIONS --use-system-ca" .venv/bin/npm install --prefix .azurite --no-save --no-package-lock \
		--ignore-scripts --omit=optional --no-audit --no-fund --no-update-notifier --loglevel=error --before=$(AZURITE_DATE) \
		azurite@$(AZURITE_VERSION)
	touch $@

# Only tests of the page need it.
chromium: .chromium/.stamp

.chromium/.stamp: dev/fetch_chromium.py | .venv/.stamp-dev
	rm -f $@
	echo 'Fetching Chromium for the tests of the page into .chromium'
	.venv/bin/python dev/fetch_chromium.py .chromium
	touch $@

# `make bench` compares with it, and does without it where it cannot be installed.
flink: | .venv/.stamp-run
	$(MAKE) --silent --no-print-directory --file dev/setup.mk PYTHON=$(PYTHON) .flink/.stamp || { \
		mkdir -p .flink; rm -f .flink/.stamp; \
		echo 'Flink could not be installed, see above; the benchmark leaves it out.' >&2; }

# In a separate environment: it needs other versions of packages that Airflow and Spark use.
.flink/.stamp: dev/jvm/flink.xml dev/jvm/ivysettings.xml dev/setup.mk | .venv/.stamp-run
	rm -f $@
	echo 'Installing Flink $(FLINK_VERSION) into .flink'
	test -x .flink/venv/bin/python || .venv/bin/uv venv --quiet --python $(PYTHON) .flink/venv
	.venv/bin/uv pip install --python .flink/venv/bin/python --system-certs apache-flink==$(FLINK_VERSION)
	.venv/bin/python dev/resolve_jvm.py --ivy-file dev/jvm/flink.xml --target .flink --configurations jars iceberg avro
	touch $@
