"""What is computed of one recommendation in words: assumptions, waterfall, proof, and the page of its rule."""
