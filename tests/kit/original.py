"""NATS Streaming Server itself, where there is one: the environment variable STAN_ORIGINAL names its program."""

import os

import pytest

ORIGINAL = os.environ.get("STAN_ORIGINAL", "")

needs_original = pytest.mark.skipif(not ORIGINAL, reason="STAN_ORIGINAL names no program of NATS Streaming Server")
