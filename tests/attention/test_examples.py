"""The examples in the docstrings of the public functions print what they say."""

import doctest
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attention

FUNCTIONS = {
    name: value
    for name, value in vars(attention).items()
    if name in attention.__all__ and inspect.isfunction(value)
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example(name):
    names = vars(attention) | {"jax": jax, "jnp": jnp}
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(FUNCTIONS[name], name, module=False, globs=names)
    assert test.examples
    report = []
    with np.printoptions(precision=2, suppress=True):
        doctest.DocTestRunner().run(test, out=report.append)
    assert "".join(report) == ""
