"""How many examples a property is tried with.

    HEADRACE_EXAMPLES=100000 .venv/bin/python -m pytest tests/unit/test_parallel_assignment.py

tries more of them than the few seconds allow that a test has by default.
"""

import os

from hypothesis import settings

MANY = os.environ.get("HEADRACE_EXAMPLES")


def examples(usual: int, **more: int) -> settings:
    """Settings with so many examples, or as many as the environment asks for."""
    return settings(max_examples=int(MANY or usual), **more)
