"""Measurements of a host beside its operating points: changes that were verified, and errors near points."""
