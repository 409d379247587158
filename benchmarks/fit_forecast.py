"""`python -m benchmarks.fit_forecast`: see `benchmarks.forecast.fit_table`."""

from benchmarks.forecast.fit_table import main

if __name__ == "__main__":
    main()
