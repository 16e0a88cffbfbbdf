"""What every test can rely on."""

import os
import signal

from hypothesis import settings

# A shell that starts the tests in the background makes them ignore SIGINT, and their children with them; tests of Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine must fail no test: the 200 ms that hypothesis gives an example by default measure the neighbours. Every run tries the same
# examples, so that a change is what fails; HYPOTHESIS_PROFILE=explore tries new ones, quick a tenth of them.
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))
