"""Computed detail of one recommendation as sections: assumptions, waterfall, proof, and the page of its rule."""
