"""Commands that open screens: `up` with the programs behind them, `top` over a database, `top --web` for a browser."""
