"""What the command line and the console both need, on top of the clients."""
