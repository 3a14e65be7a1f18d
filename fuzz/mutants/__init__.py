"""Named wrong versions of the operations, to test the tests.

A mutant is never a target: it exists so that a frozen case or a strategy that
would not notice a fault of that kind is itself noticed.
"""
