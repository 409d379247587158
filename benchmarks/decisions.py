"""`python -m benchmarks.decisions`: see `benchmarks.forecast.decisions`."""

from benchmarks.forecast.decisions import main

if __name__ == "__main__":
    main()
