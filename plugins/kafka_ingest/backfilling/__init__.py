"""Reading ranges again, or after all: what is asked for, what of it may be read, and its chunks."""
