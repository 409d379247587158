"""Commands about dollars: sizing, budget, invoice and receipts."""
