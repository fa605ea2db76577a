"""The requests of one member of a consumer group: its lease, and the positions in the channels that it owns."""

from stan_protocol.proto import extension_pb2 as pb

from stan_client.requests.names import raw
from stan_client.requests.requester import Requester


class MembershipRequests:
    """Keeps a lease, and commits positions."""

    def __init__(self, requester: Requester, group: str) -> None:
        self._requester = requester
        self._group = raw(group)
        self.cluster = b""
        """The cluster whose channels the member has."""

    async def note(
        self, channel: str, sequence: int, *, generation: int, claim: bool, uid: int, cluster: bytes, read_ns: int = 0
    ) -> int:
        """Commit the group's position in a channel as its owner of that *generation*. With *claim*, shut out earlier owners, and
        begin at *sequence* if there is no position. *read_ns*: timestamp of the channel's newest message when it was
        read. Returns the position, which never goes back.

        Raises:
            ServerError: refused, for example because a later owner has claimed it.
        """
        request = pb.CursorSetRequest(
            name=self._group,
            channel=raw(channel),
            sequence=sequence,
            generation=generation,
            claim=claim,
            uid=uid,
            cluster=cluster,
            read_timestamp=read_ns,
        )
        return (await self._requester.ask("cursor_set", request, pb.CursorSetResponse)).sequence

    async def renew(self, request: pb.ConsumerGroupRequest, timeout_s: float | None) -> pb.ConsumerGroupResponse:
        """Renew the lease, and return the member's channels. Sent once, as the next request has newer facts than a repetition of
        this one; with a *timeout_s* of None until it is answered."""
        return await self._requester.ask(
            "consumer_group", request, pb.ConsumerGroupResponse, repeat=timeout_s is None, patience_s=timeout_s
        )
