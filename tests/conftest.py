"""What every test can rely on."""

import os
import re
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A shell that starts the tests in the background makes them ignore SIGINT, and their children with them; tests of Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine must fail no test: the 200 ms that hypothesis gives an example by default measure the neighbours. Every run tries the same
# examples, so that a change is what fails; HYPOTHESIS_PROFILE=explore tries new ones, quick a tenth of them.
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

_MODULE_MARKS = re.compile(r"^pytestmark = (.*)$", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module whose tests `-m "not ..."` leaves out anyway is not imported: the SDKs alone take seconds."""
    left_out = set(re.findall(r"not (\w+)", config.getoption("markexpr")))
    if not left_out or not collection_path.match("test_*.py"):
        return None
    found = _MODULE_MARKS.search(collection_path.read_text(encoding="utf-8"))
    marks = set(re.findall(r"pytest\.mark\.(\w+)", found[1])) if found else set()
    return True if marks & left_out else None
