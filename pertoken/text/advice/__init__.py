"""Text of recommendations: their table, their sheet, their lifecycle, trials and rules."""
