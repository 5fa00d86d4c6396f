"""Property tests try the same examples on every machine."""

from hypothesis import settings

settings.register_profile("reconcile", derandomize=True, deadline=None, database=None)
settings.load_profile("reconcile")
