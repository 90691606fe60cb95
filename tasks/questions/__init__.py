"""Questions about short stories."""
