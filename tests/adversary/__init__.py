"""Random hostile worlds over a real agent process: `python -m tests.adversary --runs 10 --seed 1`.

A `World` (drawn from a seed) names engines and GPUs whose truth is known, and disturbances with their times. `run`
plays it over `pertoken agent`; `judge` then compares the truth with what the database and the commands report.
"""
