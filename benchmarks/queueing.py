"""`python -m benchmarks.queueing`: see `benchmarks.forecast.queueing`."""

from benchmarks.forecast.queueing import main

if __name__ == "__main__":
    main()
