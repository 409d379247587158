"""Rules on what clients ask: repeated requests, long outputs, long prompts."""
