"""The fuzzer: random tile programs, typed by construction, each run by the compiler and by the block interpreter.

A program is made from a seed (`generate.py`) as a small typed tree (`program.py`), printed as the text of a module and
parsed again, so that printer and parser take part. The interpreter runs it with error bounds and so knows what every
element may be (`simulator/bounds.py`); then it runs the module after each pass that stays at its levels; then the
subject, the compiled program in the simulator of PTX, runs on the same arrays (`check.py`). What differs is shrunk:
operations are taken out and extents, grids and trip counts made smaller, as long as the same thing goes wrong
(`shrink.py`).

    tesela fuzz --seed 7 --count 100      # programs 7 … 106; a failure prints its seed and the smallest program found
"""
