"""Every sentence and table that people read: advice, plan, costs, fleet and receipts. Nothing here needs a terminal."""
