"""Language models of generated and running text."""
