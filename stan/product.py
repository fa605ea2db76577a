"""Versions of the product: its own, and that of the original server.

They are not attributes of `stan`: that name is a namespace, which PyStan and the clients of the original have, too.
"""

from typing import Final

VERSION: Final = "0.1.0"

COMPATIBLE_VERSION: Final = "0.25.6"
"""Version of the original server whose clients, flags and pages we serve."""
