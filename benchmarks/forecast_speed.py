"""`python -m benchmarks.forecast_speed`: see `benchmarks.forecast.speed`."""

from benchmarks.forecast.speed import main

if __name__ == "__main__":
    main()
