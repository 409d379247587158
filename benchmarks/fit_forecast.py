"""`python -m benchmarks.fit_forecast`: see `benchmarks.forecast.fit_table`."""

import os

# Refits run in a process on each core. Set before numpy starts its own threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.forecast.fit_table import main

if __name__ == "__main__":
    main()
