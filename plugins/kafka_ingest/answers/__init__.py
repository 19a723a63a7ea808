"""How an answer is shown: its document as ``--json`` prints it, and lines and tables for people."""
