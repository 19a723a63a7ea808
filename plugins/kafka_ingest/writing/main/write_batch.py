"""spark-submit's main: the code is :mod:`kafka_ingest.writing.write_batch`, from the zip that was submitted."""

import sys

# Not by --py-files: Spark would read the zip's path as a list of URIs and patterns. Nor from beside the output, where
# others may write.
sys.path.insert(0, sys.argv[sys.argv.index("--package") + 1])

from kafka_ingest.writing.driver_process import end_with, fast_imports

with fast_imports():
    from kafka_ingest.writing.java_classes import head_start

    head_start()
    if "--check" in sys.argv:
        from kafka_ingest.writing.check_driver import main
    else:
        from kafka_ingest.writing.write_batch import main

if __name__ == "__main__":
    end_with(main)
