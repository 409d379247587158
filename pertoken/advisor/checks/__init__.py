"""What a proposal may be: the fleet after it, whether an edit can lead there, and whether settings permit it.

Front door: `candidate`, `possible`, `permitted`, `objectives`.
"""
