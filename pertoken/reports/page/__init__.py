"""A report as one HTML file with inline SVG plots: no scripts, no network requests.

Front door: `html` (`page`).
"""
