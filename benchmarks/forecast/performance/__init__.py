"""Public measurements of served models, as the forecast's benchmarks read them."""
