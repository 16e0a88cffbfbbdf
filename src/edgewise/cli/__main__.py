"""`python -m edgewise.cli`."""

from edgewise.cli import main

main()
