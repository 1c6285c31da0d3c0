"""`python -m posteer` is `posteer`."""

from posteer.cli import main

main()
