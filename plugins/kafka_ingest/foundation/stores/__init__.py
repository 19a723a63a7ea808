"""Object stores: a module for each kind, and what they have in common. Nothing else knows how kinds differ.

- :mod:`.access`: how to reach a store, for its three clients;
- :mod:`.any_store`: what reads and writes in any file system that fsspec knows, and its failures with a number;
- :mod:`.s3`: S3 and stores that speak its protocol; :mod:`.gcs`: Google Cloud Storage;
- :mod:`.azure`: Azure Data Lake Storage Gen2, and :mod:`.azure_files`, its file system;
- :mod:`.kinds`: the table of them, by the schemes of URIs.
"""
