"""Fast equivalents of plain JAX functions, each tested against its plain form."""
