"""One module a library: each runs in a process of its own and answers the harness.

`python -m benchmarks.systems.NAME MODE SPEC`, where SPEC is the JSON object that the
question's script hands over. Modules here import their own library and `worker` only,
so that each runs in the environment of its library.
"""
