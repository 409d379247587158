"""`python -m benchmarks.queueing`: see `benchmarks.forecast.live.queueing`."""

from benchmarks.forecast.live.queueing import main

if __name__ == "__main__":
    main()
