"""`python -m benchmarks.forecast_speed`: see `benchmarks.forecast.live.speed`."""

from benchmarks.forecast.live.speed import main

if __name__ == "__main__":
    main()
