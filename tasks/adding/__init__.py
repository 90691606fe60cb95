"""Adding and multiplication problems."""
