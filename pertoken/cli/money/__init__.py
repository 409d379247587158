"""Commands about dollars before, during and after a month: sizing, budget and invoice."""
