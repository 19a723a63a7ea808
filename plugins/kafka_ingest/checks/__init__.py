"""Whether an installation is sound, before the first run."""
