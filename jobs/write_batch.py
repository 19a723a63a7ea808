"""spark-submit's main: the code is :mod:`kafka_ingest.writing.write_batch`, from the zip in the attempt's directory."""

import sys
from pathlib import Path

# Not by --py-files: Spark would read the zip's path as a list of URIs and patterns, and an output's path may hold any
# of ",#:%*?[{".
# An attempt in a store has it beside the driver: Python imports from a disk only.
if "--package" in sys.argv:
    sys.path.insert(0, sys.argv[sys.argv.index("--package") + 1])
else:
    sys.path.insert(0, str(Path(sys.argv[sys.argv.index("--attempt") + 1]) / "kafka_ingest.zip"))

from kafka_ingest.writing.fast_imports import fast_imports

with fast_imports():
    from kafka_ingest.writing.head_start import head_start

    head_start()
    from kafka_ingest.writing.write_batch import main

if __name__ == "__main__":
    main()
