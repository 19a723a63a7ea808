"""The Spark job, for a spark-submit by hand; tasks and command line submit the package's own main, which this runs."""

import sys
from runpy import run_module

sys.path.insert(0, sys.argv[sys.argv.index("--package") + 1])
run_module("kafka_ingest.writing.main.write_batch", run_name="__main__")
