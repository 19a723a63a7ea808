"""Reading ranges again, or for the first time: what is requested, what of it may be read, and its chunks."""
