"""`python -m benchmarks.power`: see `benchmarks.forecast.power`."""

from benchmarks.forecast.power import main

if __name__ == "__main__":
    main()
