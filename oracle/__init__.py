"""The executable specification of speculative-decoding verify and commit.

Nothing here imports torch, an engine or another package of this project: a
reference must be readable and runnable by someone who has only NumPy. Start at
``oracle.contracts`` for the list of contracts; each contract is one module
whose docstring is its definition.
"""
