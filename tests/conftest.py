"""What every test can rely on."""

import signal

from hypothesis import settings

# A shell that starts the tests in the background makes them ignore SIGINT, and their children with them; tests of Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine must fail no test: the 200 ms that hypothesis gives an example by default measure the neighbours.
settings.register_profile("edgewise", deadline=None)
settings.load_profile("edgewise")
