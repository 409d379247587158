"""`python -m benchmarks.forecast`: see `accuracy`; with `--calibrate-with N` see `calibrate_with`."""

import os
import sys

# Refits run in a process on each core. Set before numpy starts its own threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.forecast import accuracy, calibrate_with

if __name__ == "__main__":
    asked = any(argument.partition("=")[0] == "--calibrate-with" for argument in sys.argv[1:])
    (calibrate_with if asked else accuracy).main()
