"""Fast equivalents of plain JAX functions, each tested against its plain form.

docs/benchmarks.md compares training steps with both forms of most of them.
"""
