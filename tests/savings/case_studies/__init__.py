"""Published case studies, run as scenarios with the product's own prices, sizes and plans."""
