"""Types and shapes of annotations, enforced where a function is called while tests run.

To check every call takes as long again as all that is tested. So a function is checked the first
times that a test calls it, and `CHECKED_CALLS=all`, which `make test-all` sets, checks every call.
"""

import functools
import inspect
import math
import os

import jaxtyping

FIRST_CALLS = 3
"""Of each function in each test."""


class Checked:
    """What tests are under way: a number for each, and how many calls are checked in it."""

    test = 0
    calls = math.inf if os.environ.get("CHECKED_CALLS") == "all" else FIRST_CALLS


def check_first_calls(jaxtyped=jaxtyping.jaxtyped):
    """Have `jaxtyping.jaxtyped`, which its import hook writes above every function, check the
    first calls in each test alone; classes are checked as ever."""

    def some_calls(*, typechecker):
        checks = jaxtyped(typechecker=typechecker)

        def decorate(function):
            return (
                _first_calls(function, checks) if inspect.isfunction(function) else checks(function)
            )

        return decorate

    jaxtyping.jaxtyped = some_calls


def _first_calls(function, checks):
    checked, test, calls = None, -1, 0

    @functools.wraps(function)
    def one(*args, **kwargs):
        nonlocal checked, test, calls
        if test != Checked.test:
            test, calls = Checked.test, 0
        calls += 1
        if calls > Checked.calls:
            return function(*args, **kwargs)
        if checked is None:
            checked = checks(function)
        return checked(*args, **kwargs)

    return one
