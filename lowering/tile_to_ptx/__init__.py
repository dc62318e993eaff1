"""From tiles with layouts to one thread's program over register vectors; `kernel.py` is the pass, one file for each family of ops."""
