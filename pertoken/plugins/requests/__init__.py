"""Rules about requests: repeated requests, long outputs, long prompts."""
