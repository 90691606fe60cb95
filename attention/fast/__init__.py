"""Fast equivalents of plain JAX functions, each tested against its plain form.

docs/benchmarks.md has the times of training steps with both forms.
"""
