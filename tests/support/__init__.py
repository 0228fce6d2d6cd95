"""What tests on a real cluster share: the command line, its servers, waiting, a ledger."""
