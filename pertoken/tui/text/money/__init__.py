"""Money as text: sizing before a deployment, figures of models, spend and budget of a month, and invoices."""
