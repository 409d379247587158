"""Commands about dollars: sizing, claims, budget, invoice and receipts."""
