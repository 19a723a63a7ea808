"""What spark-submit is given, in a folder of its own: Python puts it on the path, where no module of ours may be."""
