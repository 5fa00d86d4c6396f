"""`python -m reconcile.cli` is `reconcile`."""

from reconcile.cli import main

main()
