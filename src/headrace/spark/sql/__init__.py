"""SQL over topics and tables by name: once, or on and on."""
