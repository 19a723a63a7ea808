"""spark-submit's main: the package comes by ``--py-files``; everything is in :mod:`kafka_ingest.writing.write_batch`."""

from kafka_ingest.writing.fast_imports import fast_imports

with fast_imports():
    from kafka_ingest.writing.head_start import head_start

    head_start()
    from kafka_ingest.writing.write_batch import main

if __name__ == "__main__":
    main()
