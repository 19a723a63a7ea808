"""spark-submit's main: the package comes by ``--py-files``; everything is in :mod:`kafka_ingest.writing.write_batch`."""

from kafka_ingest.writing.write_batch import main

if __name__ == "__main__":
    main()
