"""A report as one HTML file with inline SVG plots: no script, and no request to anywhere.

Front door: `html` (`page`).
"""
