"""`python -m posteer.cli` is `posteer`."""

from posteer.cli import main

main()
