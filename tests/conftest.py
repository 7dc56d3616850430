"""Settings for all tests."""

from hypothesis import settings

# A test says what holds, never how fast: a machine that is busy must not make it fail.
settings.register_profile("dirigo", deadline=None)
settings.load_profile("dirigo")
