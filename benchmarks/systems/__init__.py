"""One module per library, each run in a process that answers the harness.

`python -m benchmarks.systems.NAME MODE SPEC`, where SPEC is a JSON object from the
benchmark. A module imports only its library and `worker`, so that it runs in the
environment of that library.
"""
