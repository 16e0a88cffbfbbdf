"""What every test can rely on."""

import signal

# A shell that starts the tests in the background makes them ignore SIGINT, and their children with them; tests of Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)
