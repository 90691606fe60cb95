"""One module per system, each run in a process that answers the harness.

`python -m benchmarks.systems.worker NAME MODE SPEC`, where SPEC is a JSON object from
the benchmark, calls `build(MODE, SPEC)` of the module. It returns the arguments of
`worker.serve`: a step, facts about the system, and the number of steps to warm up. A
module imports only its library, so that it runs in the environment of that library.

The modules `pytorch_NAME` are compact rewritings of published code that is not a
package, with the structure that determines its speed, which their docstrings list. Mode
"step" is one training step on random data; the units are steps unless they are named.
"""
