"""Runs an entry point and records which items each call of `spread.each` computes.

    python tests/shares.py FILE none eval.py --workdir=...
    python tests/shares.py FILE 1 eval.py --workdir=...

In the second command, process 1 fails at its first item. Each line of FILE.N, of
process N, is a call in a block of `spread.over_processes`: the numbers of the items
that the process computes, and the number of all items.
"""

import json
import runpy
import sys

import jax

from base import spread

name, failing, *sys.argv = sys.argv[1:]


def each(function, items, original=spread.each):
    if not spread._spreads():
        return original(function, items)
    computed = []

    def record(item):
        if failing == str(jax.process_index()):
            raise ValueError("this item fails")
        computed.append(item[0])
        return function(item[1])

    results = original(record, enumerate(items))
    with open(f"{name}.{jax.process_index()}", "a") as file:
        print(json.dumps([computed, len(results)]), file=file)
    return results


spread.each = each
runpy.run_path(sys.argv[0], run_name="__main__")
