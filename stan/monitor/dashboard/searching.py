"""A search of the messages of one channel for the browser: it reads from a place on, and tells what it finds as it goes.

Promises: it ends at its bounds of matches, messages, bytes and time, and says where to go on; it reads nothing more once nobody
takes its steps; other tasks run meanwhile.
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple

from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient
from stan.monitor.dashboard.formatting import name_of_key
from stan.monitor.dashboard.messages import messages_of, shown_message
from stan.monitor.dashboard.schemas import ChannelSchema
from stan.monitor.dashboard.tables import BadQuestionError, number
from stan.monitor.page_format import shown
from stan.monitor.view import CooperativeYield
from stan.status.message_search import BadConditionError, Condition, SearchTally, has_header, has_key, has_text

Json = dict[str, Any]
_FAR = 1 << 62


class SearchRequest(NamedTuple):
    """A search, as a browser asks for it."""

    channel: bytes
    of_data: tuple[Condition, ...]  # also tried with the data as its schema decodes it
    others: tuple[Condition, ...]
    sequence: int = 0  # first one; 0: not given
    last: int = 0  # last sequence; 0: the end of the channel
    since: int = 0  # Unix ns; 0: not given
    until: int = 0  # Unix ns; 0: not given
    limit: int = 50  # matches at most

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "SearchRequest":
        """Read the parameters of a request: `name` (a channel's key), `text`, `case` (1: it counts), `key`, `header`
        (NAME or NAME=VALUE), `sequence`, `last`, `since`, `until` (Unix ms), `limit`. Raises BadQuestionError."""
        given = {name: query.get(name, "") for name in ("text", "key", "header")}
        if any(len(value) > limits.DASHBOARD_SEARCH_CHARS_MAX for value in given.values()):
            raise BadQuestionError(f"at most {limits.DASHBOARD_SEARCH_CHARS_MAX} characters can be searched for")
        try:
            header = (has_header(given["header"]),) if given["header"] else ()
        except BadConditionError as error:
            raise BadQuestionError(f"header: {error}") from None
        text = (has_text(given["text"], ignore_case=query.get("case") != "1"),) if given["text"] else ()
        key = (has_key(given["key"]),) if given["key"] else ()
        if not (text or key or header):
            raise BadQuestionError("say what to search for: a text, a key or a header")
        return cls(
            name_of_key(query.get("name", "")),
            text,
            (*key, *header),
            sequence=number(query, "sequence", 0, _FAR, 1),
            last=number(query, "last", 0, _FAR, 1),
            since=number(query, "since", 0, _FAR // MILLISECOND) * MILLISECOND,
            until=number(query, "until", 0, _FAR // MILLISECOND) * MILLISECOND,
            limit=number(query, "limit", 50, limits.DASHBOARD_MESSAGES_MAX, 1),
        )


class _Candidate(NamedTuple):
    """A message that conditions look at."""

    data: bytes
    key: bytes
    headers: dict[str, bytes]
    decoded: Callable[[], bytes]  # its data as the schema decodes it


class MessageSearch:
    """A search in progress. *clock*: monotonic ns."""

    def __init__(
        self,
        cluster_client: ClusterClient,
        request: SearchRequest,
        schema: ChannelSchema,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._cluster_client = cluster_client
        self._request = request
        self._schema = schema
        self._clock = clock
        of_data = map(_or_decoded, request.of_data) if schema.is_binary else request.of_data
        self._tally = SearchTally(
            [*request.others, *of_data],
            matches_max=request.limit,
            messages_max=limits.DASHBOARD_SEARCH_MESSAGES_MAX,
            bytes_max=limits.DASHBOARD_SEARCH_BYTES_MAX,
        )
        self._next = request.sequence  # of the next message; 0: not known yet
        self._over = False

    async def steps(self) -> AsyncGenerator[Json]:
        """Yield `{"message": ...}` for each match, `{"looked": ...}` after each answer, and at the end a `looked` with `done`,
        and `next` above 0 if a bound ended it. Errors as of `ClusterClient.ask`."""
        until = self._clock() + limits.DASHBOARD_SEARCH_TIME
        time_slice = CooperativeYield()
        while not self._over and not self._tally.is_full and self._clock() < until:
            answer = await self._cluster_client.ask("fetch", self._fetch(), pb.FetchResponse)
            for message in messages_of(answer):
                if self._tally.is_full or self._is_behind(message):
                    break
                self._next = message.sequence + 1
                if self._tally.add(self._candidate(message)):
                    yield {"message": shown_message(message, self._schema)}
                await time_slice.yield_if_due()
            else:
                self._go_on(answer)
            yield {"looked": self._looked()}
        yield {"looked": self._looked() | {"done": True, "next": 0 if self._over else self._next}}

    def _fetch(self) -> pb.FetchRequest:
        asked = self._request
        request = pb.FetchRequest(channel=asked.channel, last=asked.last, max_bytes=limits.DASHBOARD_SEARCH_FETCH_BYTES)
        if self._next:
            request.from_sequence = self._next
        elif asked.since:
            request.from_time = asked.since
        else:
            request.from_sequence = 1
        return request

    def _is_behind(self, message: wire.MsgProto) -> bool:
        """Return True for a message behind the end of the search, which is over then; times only grow in a channel."""
        asked = self._request
        self._over = bool((asked.until and message.timestamp > asked.until) or 0 < asked.last < message.sequence)
        return self._over

    def _go_on(self, answer: pb.FetchResponse) -> None:
        """Note where the next answer begins, or that there is nothing more."""
        if not answer.last_sequence and answer.records:
            return  # one large message left no room for more
        self._next = max(self._next, answer.next_sequence)
        end = min(self._request.last or _FAR, answer.last_sequence)
        self._over = not answer.next_sequence or answer.next_sequence > end

    def _candidate(self, message: wire.MsgProto) -> _Candidate:
        headers = {shown(header.key): bytes(header.value) for header in message.headers}
        schema = self._schema
        return _Candidate(message.data, message.key, headers, lambda: schema.text_of(message).encode())

    def _looked(self) -> Json:
        tally = self._tally
        return {"messages": tally.messages, "matches": tally.matches, "bytes": tally.bytes, "sequence": self._next - 1}


def _or_decoded(condition: Condition) -> Condition:
    """Return the condition that *condition* holds for the data as it is, or as its schema decodes it."""

    def either(message: Any) -> bool:
        return condition(message) or condition(message._replace(data=message.decoded()))

    return either
