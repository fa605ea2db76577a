"""Typed access to the nodes of a configuration file for blocks that collect all their mistakes, each with its line; pure."""

from stan.settings.nats_conf import ConfNode, Document


class NodeReader:
    """Reads nodes as maps, lists and texts; other values become complaints."""

    def __init__(self) -> None:
        self.complaints: list[str] = []

    def complain(self, node: ConfNode, text: str) -> None:
        """Add a complaint about *node*."""
        self.complaints.append(f"{node.place}: {text}")

    def map(self, node: ConfNode, what: str) -> Document:
        """Return the entries of a map; none, and a complaint, if it is none."""
        if isinstance(node.data, dict):
            return node.data
        self.complain(node, f"expected {what} to be a map in braces")
        return {}

    def items(self, node: ConfNode, name: str) -> list[ConfNode]:
        """Return the items of a list; none, and a complaint, if it is none."""
        if isinstance(node.data, list):
            return node.data
        self.complain(node, f"expected {name} to be a list in brackets")
        return []

    def text(self, node: ConfNode, name: str) -> str:
        """Return a text, or a number as one; "", and a complaint, if it is neither."""
        if isinstance(node.data, int) and not isinstance(node.data, bool):
            return str(node.data)
        if isinstance(node.data, str) and node.data:
            return node.data
        self.complain(node, f"expected {name} to be a string that is not empty")
        return ""

    def texts(self, node: ConfNode, name: str) -> tuple[str, ...]:
        """Return the texts of a list, or one text."""
        nodes = node.data if isinstance(node.data, list) else [node]
        return tuple(filter(None, (self.text(one, name) for one in nodes)))
