"""Dollars before, during and after a month as text: sizing, figures, budget and invoice."""
