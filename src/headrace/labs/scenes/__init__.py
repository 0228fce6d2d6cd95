"""The labs themselves, one file each."""
