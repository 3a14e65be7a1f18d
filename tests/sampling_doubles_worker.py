"""What a worker imports to have the doubles: registering is a side effect that a
test's own process must not have."""

from tests.sampling_doubles import register

register()
