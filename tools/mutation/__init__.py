"""Mutation of compiled kernels: faults planted in PTX programs that are right, to count how many the simulator catches.

    launches = record(run)                       # the simulator launches that `run()` makes, to be repeated
    trial = Trial(launches[0])
    for mutant in choose(sites(launches[0]), each=2, seed="0"):
        verdict = trial.judge(mutant)            # reported, equivalent, missed …

`launches.py` records a launch so that it can be repeated with another program; `faults.py` is the table of kinds of faults, what each does to the
program, and as what it must be reported; `live.py` passes over faults of data that change nothing at their own place; `trial.py` runs a mutant under several schedules with the judge and compares results; `equivalent.py`
decides, by code and from a closed list of reasons, which of the mutants about which nothing was said can do no harm. `tesela mutate` and
`bench/mutants.py` are built on them.
"""
