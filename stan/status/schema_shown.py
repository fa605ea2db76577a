"""A version of a schema as people read it; pure."""

import json

from stan_protocol.admin_types import SchemaStatus
from stan_protocol.schemas import protobuf
from stan_protocol.schemas.kinds import SchemaKind


def shown_text(version: SchemaStatus) -> str:
    """Return a version for people: JSON indented, descriptors as text of protobuf."""
    if version.kind == SchemaKind.PROTOBUF:
        return f"# message {version.message}\n{protobuf.shown(version.text)}"
    return json.dumps(json.loads(version.text), indent=2, ensure_ascii=False) + "\n"
