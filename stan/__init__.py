"""A push-based streaming broker: the maintained, drop-in successor of NATS Streaming Server."""

__version__ = "0.1.0"

#: Protocol level of the original server whose clients, flags and pages we serve.
COMPATIBLE_VERSION = "0.25.6"
