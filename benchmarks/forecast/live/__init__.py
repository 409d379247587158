"""The forecast beside a live server, and how long it takes to compute."""
