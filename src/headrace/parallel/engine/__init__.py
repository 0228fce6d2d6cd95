"""The loops around `state`: a pump that owns the client, a desk, and crews that run handlers."""
