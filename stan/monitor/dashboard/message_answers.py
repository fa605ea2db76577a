"""Answers about messages: those of a channel, one of them with its history, searches, and the schemas by which they are read.

Errors of all: BadQuestionError: a parameter is invalid. UnknownNameError: no such channel, message or schema.
NotAllowedError: the viewer lacks a right. Others as of `ClusterClient.ask`.
"""

from collections.abc import Mapping
from typing import Any, Final

from stan_protocol.scalars import MILLISECOND

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient
from stan.monitor.dashboard import explaining, messages
from stan.monitor.dashboard.formatting import name_of_key
from stan.monitor.dashboard.schemas import SchemaRegistry
from stan.monitor.dashboard.searching import MessageSearch, SearchRequest
from stan.monitor.dashboard.tables import BadQuestionError, number
from stan.monitor.dashboard.visible import check_question
from stan.monitor.login.viewer import Viewer
from stan.monitor.pages import UnknownNameError

Json = dict[str, Any]
Query = Mapping[str, str]

OF_MESSAGES: Final = frozenset({"messages", "explain", "schemas", "schema"})
"""Questions that are answered here, with JSON."""


class MessageAnswers:
    """Answers a viewer's questions about messages."""

    def __init__(self, cluster_client: ClusterClient, registry: SchemaRegistry, viewer: Viewer) -> None:
        self._cluster_client = cluster_client
        self._registry = registry
        self._viewer = viewer

    async def messages(self, query: Query) -> Json:
        """Return messages of a channel: from `sequence`, else from `time` (Unix ms), else the newest; `last`: the last sequence,
        `limit`: messages at most."""
        most = limits.DASHBOARD_MESSAGES_MAX
        far = 1 << 62
        question = messages.MessageQuery(
            name_of_key(query.get("name", "")),
            sequence=number(query, "sequence", 0, far, 1),
            time=number(query, "time", 0, far // MILLISECOND) * MILLISECOND,
            last=number(query, "last", 0, far, 1),
            limit=number(query, "limit", 50, most, 1),
        )
        if question.sequence and question.last and question.last < question.sequence:
            raise BadQuestionError("last: not below sequence")
        schema = await self._registry.of_channel(question.channel)
        return await messages.page(self._cluster_client, question, schema)

    async def search(self, query: Query) -> MessageSearch:
        """Return a search of the messages of a channel; parameters as of `SearchRequest.of`. Raises NotAllowedError, too."""
        check_question(self._viewer, "search", query)
        request = SearchRequest.of(query)
        schema = await self._registry.of_channel(request.channel)
        return MessageSearch(self._cluster_client, request, schema)

    async def schemas(self, _query: Query) -> Json:
        """Return all versions of schemas, without their texts."""
        return {"rows": await self._registry.listed(self._sees_schema)}

    async def schema(self, query: Query) -> Json:
        """Return the versions of the schema of a pattern (`name`, a key) with their texts."""
        pattern = name_of_key(query.get("name", ""))
        versions = await self._registry.of_pattern(pattern) if pattern and self._sees_schema(pattern) else []
        if not versions:
            raise UnknownNameError("there is no schema of this pattern")
        return {"pattern": versions[0]["pattern"], "versions": versions}

    def _sees_schema(self, pattern: bytes) -> bool:
        return self._viewer.sees(pattern) or self._viewer.reads(pattern)

    async def explain(self, query: Query) -> Json:
        """Return the history of the message `sequence` of the position `cursor` (its id) of a channel."""
        cursor, sequence = number(query, "cursor", 0, 1 << 62, 1), number(query, "sequence", 0, 1 << 62, 1)
        if not cursor or not sequence:
            raise BadQuestionError("cursor, sequence: from 1 on")
        name = name_of_key(query.get("name", ""))
        return await explaining.explained(self._cluster_client, name, cursor, sequence)

    async def payload(self, query: Query) -> bytes:
        """Return the whole payload of a message. Raises NotAllowedError, too."""
        check_question(self._viewer, "payload", query)
        name, sequence = name_of_key(query.get("name", "")), number(query, "sequence", 0, 1 << 62, 1)
        message = await messages.read_one(self._cluster_client, name, sequence) if sequence else None
        if message is None:
            raise UnknownNameError("there is no such message")
        return bytes(message.data)
