"""The account that Azure's server has in these tests, apart from the server: its client takes long to import."""

import base64

ACCOUNT = "lakehouse"
KEY = base64.b64encode(b"key of the account that these tests have").decode()
IS_FOLDER = {"hdi_isfolder": "true"}
"""What Hadoop and Azure's stores note of a blob that stands for a folder."""
