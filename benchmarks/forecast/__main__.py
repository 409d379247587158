"""`python -m benchmarks.forecast`: see `benchmarks.forecast.accuracy`."""

from benchmarks.forecast.accuracy import main

if __name__ == "__main__":
    main()
