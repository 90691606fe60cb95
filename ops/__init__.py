"""Fast equivalents of plain functions, each tested against the plain form."""
