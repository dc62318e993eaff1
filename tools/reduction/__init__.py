"""Reduction of failing modules: `search.py` tries smaller texts while a test holds, `ir.py` makes smaller modules of IR, `ptx.py` smaller PTX."""
