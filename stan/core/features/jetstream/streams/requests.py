"""Requests that make, change, list and delete streams.

    CREATE, UPDATE ─► leader of the metadata: checked, one entry ─► leader of the channel, which listens by then, answers
    DELETE ─► leader of the channel;  NAMES, LIST, INFO of the account ─► leader of the metadata

Promises: a stream and its channel are made by one entry; the same request again changes nothing. A stream goes with its channel,
but for one that has taken a channel over which was there before: that one stays, with its messages and positions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from stan_protocol.channels import folded, is_channel_name, publication, whole_of
from stan_protocol.refusals import case_conflict, go_quote

from stan import limits
from stan.core.base.names import text
from stan.core.features import BrokerParts
from stan.core.features.jetstream.audience import Audience
from stan.core.features.jetstream.requests import ApiHandler, ApiRequest
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.features.jetstream.streams.descriptions import StreamDescriptions
from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.features.jetstream.streams.subjects import SubjectIndex
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import MetaResult
from stan.core.metadata.streams import CHANGED, OVERLAPS, TOO_MANY, Stream
from stan.core.services.leader_part import LeaderPart
from stan.core.services.node import META_GROUP
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.policies import EPHEMERAL
from stan.protocol.jetstream.advisories import AdvisoryMaker
from stan.protocol.jetstream.allowed import outside
from stan.protocol.jetstream.api import ASKS_SERVER, CHANGES, JUDGED_LATER, LEVEL, PAGED, PREFIX, SEES, Answerer, ApiRow
from stan.protocol.jetstream.errors import (
    ALONE,
    INSUFFICIENT,
    NO_STREAM,
    OVERLAP,
    STREAM_EXISTS,
    TOO_MANY_STREAMS,
    UNAVAILABLE,
    UNSUPPORTED_IN_CLUSTER,
    ApiError,
    RequestError,
    invalid_config,
    not_permitted,
)
from stan.protocol.jetstream.json_data import Fields
from stan.protocol.jetstream.streams import StreamConfig, changed, requested, update_refusal
from stan.protocol.proto import entries_pb2 as pb

_METADATA: Final = Answerer.METADATA
ACCOUNT = ApiRow("INFO", "account_info", JUDGED_LATER, _METADATA)
CREATE, UPDATE = (
    ApiRow("STREAM.CREATE.*", "stream_create", JUDGED_LATER, _METADATA, rated=True),
    ApiRow("STREAM.UPDATE.*", "stream_update", JUDGED_LATER, _METADATA, rated=True),
)
CREATED, UPDATED = (
    ApiRow("STREAM.CREATED.*", "stream_create", SEES, outlasts=limits.API_OUTLASTS),
    ApiRow("STREAM.UPDATED.*", "stream_update", SEES, outlasts=limits.API_OUTLASTS),
)
"""Sent by the leader of the metadata, so that the leader of the channel answers the client."""
DELETE: Final = ApiRow("STREAM.DELETE.*", "stream_delete", CHANGES, rated=True)
NAMES, LIST = (
    ApiRow("STREAM.NAMES", "stream_names", JUDGED_LATER, _METADATA, PAGED, rated=True),
    ApiRow("STREAM.LIST", "stream_list", JUDGED_LATER, _METADATA, PAGED, rated=True),
)
REFUSED: Final = tuple(
    ApiRow(subject, response, SEES)
    for subject, response in (
        ("STREAM.SNAPSHOT.*", "stream_snapshot"),
        ("STREAM.RESTORE.*", "stream_restore"),
        ("STREAM.LEADER.STEPDOWN.*", "stream_leader_stepdown"),
        ("STREAM.PEER.REMOVE.*", "stream_remove_peer"),
    )
)
"""Known, and not built."""


class StreamDeletions(LeaderPart):
    """Requests to delete streams of one group that wait until the metadata have lost them, while this node leads it."""

    def __init__(self, services: Services, leadership: Leadership) -> None:
        super().__init__(services, leadership)
        self.waiting: dict[str, list[ApiRequest]] = {}

    def add(self, request: ApiRequest) -> bool:
        """Have a request wait; returns True if it is the first about its stream."""
        waiting = self.waiting.setdefault(request.known.name, [])
        waiting.append(request)
        return len(waiting) == 1

    def ended(self, name: str, error: str = "") -> None:
        """The stream is gone, or stays because of an error."""
        for request in self.waiting.pop(name, []):
            if error:
                request.refuse(UNAVAILABLE)
            else:
                request.answer(success=True)


class StreamRequests:
    """Handles requests about streams as a whole."""

    def __init__(self, services: Services, parts: BrokerParts, rights: JetStreamRights) -> None:
        self.rights = rights
        self.leading, self.node = services.leading, services.node
        self.outgoing = services.outgoing
        self.placement, self.proposals = services.placement, services.proposals
        self.channels = parts.channels
        self.descriptions = StreamDescriptions(services, parts.channels.policies)
        self._advisories, self._audience = AdvisoryMaker(services.node.name), Audience(rights)

    def handlers(self) -> dict[ApiRow, ApiHandler]:
        """The handler of each kind of request."""
        found: dict[ApiRow, ApiHandler] = {
            ACCOUNT: self._account,
            CREATE: self._create,
            UPDATE: self._update,
            CREATED: lambda request: self._answer(request, did_create=True),
            UPDATED: self._answer,
            DELETE: self._delete,
            NAMES: self._names,
            LIST: self._list,
        }
        return found | dict.fromkeys(REFUSED, self._not_built)

    def advise(self, name: str, before: Stream | None) -> None:
        """Publish that a stream came, changed or went, if this node leads the metadata. *before*: as it was, None: it was not."""
        if self.node.leads_meta:
            found = self.node.meta.streams.by_name.get(name)
            action = "delete" if found is None else "create" if before is None else "modify"
            users = self._audience.of_stream(found, before)
            self.outgoing.responses += self._advisories.of_stream(users, self.node.clock.wall, name, action)

    def changed(self, name: str) -> None:
        """A stream came, changed or went."""
        if name not in self.node.meta.streams.by_name:
            self.leading.each(StreamDeletions, StreamDeletions.ended, name)

    # --- making and changing ------------------------------------------------------------------------------------------

    def _create(self, request: ApiRequest) -> None:
        config, known = self._requested(request)
        if config.sealed:
            raise RequestError(invalid_config("stream configuration for create can not be sealed"))
        if known is not None and known.config != config:
            raise RequestError(STREAM_EXISTS)
        self.check_subjects(config, known)
        self.check_channel(config, known)
        if known is not None:
            self._hand_on(request, CREATED)
        else:
            self._propose(request, config, None, CREATED)

    def _update(self, request: ApiRequest) -> None:
        config, known = self._requested(request)
        if known is None:
            raise RequestError(NO_STREAM)
        self.check_subjects(config, known)
        refusal = update_refusal(known.config, config)
        if refusal:
            raise RequestError(invalid_config(refusal))
        if known.config == config:
            self._hand_on(request, UPDATED)
        else:
            self._propose(request, config, known, UPDATED)

    def _requested(self, request: ApiRequest) -> tuple[StreamConfig, Stream | None]:
        """The configuration that a request asks for, and the stream as it is. Raises RequestError."""
        if self.node.meta.info is None:
            raise RequestError(UNAVAILABLE)
        return self.config_of(request.document(), request.named[0], request.user)

    def config_of(
        self, document: Mapping[str, Any], name: str, user: str, own: Mapping[str, Any] | None = None
    ) -> tuple[StreamConfig, Stream | None]:
        """The configuration that a document of *user* ("" without users) asks for, and the stream as it is. *own*: as of
        `take_own`. Raises RequestError."""
        config = replace(requested(document, name, self._replicas()), **(own or {}))
        known = self.node.meta.streams.by_name.get(name)
        if known is not None:
            config = changed(known.config, config)
        self.rights.check_stream(user, config, known)
        return config, known

    def check_subjects(self, config: StreamConfig, known: Stream | None) -> None:
        """Refuse subjects that a new stream, or one that is there, cannot have beside the others. Raises RequestError."""
        if self.node.meta.streams.is_too_much(config):
            raise RequestError(TOO_MANY_STREAMS)
        if self.node.meta.streams.overlapping(config):
            raise RequestError(OVERLAP)
        if known is None or known.config.subjects != config.subjects:
            self._check_allowed(config)

    def _check_allowed(self, config: StreamConfig) -> None:
        """Refuse a channel, and subjects, for which clients of JetStream are not served. Raises RequestError."""
        other = outside(config, self.node.config.jetstream_channels)
        if other:
            raise RequestError(
                invalid_config(f"{go_quote(other)} is none of the channels and subjects in jetstream_api")
            )

    def _replicas(self) -> int:
        """The number of nodes that keep a channel."""
        cluster = self.node.config.cluster
        if cluster is None:
            return 1
        return max(1, min(cluster.replicas, len(self.node.meta.nodes.names or cluster.voters(self.node.name))))

    def check_channel(self, config: StreamConfig, known: Stream | None) -> None:
        """Refuse a stream whose channel cannot be made or taken over. Raises RequestError."""
        meta, name = self.node.meta, config.channel
        there, lower = meta.channels.get(name), meta.channels.by_lower.get(folded(name), name)
        why = ""
        if not is_channel_name(name):
            why = "the stream's channel cannot have this name"
        elif lower != name:
            why = case_conflict(text(name), text(lower))
        elif whole_of(name) != name or meta.channels.parted.reserves(name) or name in meta.channels.parted.by_name:
            why = "a channel with parts can not be a stream"
        elif there is not None and known is None and there.uid in meta.streams.by_uid:
            why = f"the channel {text(name)} is that of another stream"
        elif (there.commit if there is not None else self.placement.wanted_commit(name)) == EPHEMERAL:
            why = "an ephemeral channel can not be a stream"
        elif self.placement.policies.of(name, b"").delay:
            why = "a channel with a delay can not be a stream"
        if why:
            raise RequestError(invalid_config(why))
        if (
            there is not None
            and there.group in self.node.groups
            and there.uid in self.node.group_of(there).machine.dropped
        ):
            raise RequestError(UNAVAILABLE)

    def _propose(self, request: ApiRequest, config: StreamConfig, known: Stream | None, then: ApiRow) -> None:
        change = self.change_to(config, known)
        self.proposals.change_meta(partial(self._decided, request, then), stream=change)

    def change_to(self, config: StreamConfig, known: Stream | None) -> pb.StreamChange:
        """The change that gives a stream, or a new one, this configuration."""
        return pb.StreamChange(
            name=config.name.encode(),
            changed=0 if known is None else known.changed,
            config=config.encoded(),
            channel=config.channel,
            group=self.placement.home(config.channel),
            at=self.node.clock.wall,
        )

    def _decided(self, request: ApiRequest, then: ApiRow, result: object, _error: str) -> None:
        if not isinstance(result, MetaResult):
            request.refuse(UNAVAILABLE)
        elif result.error == CHANGED:  # another client was faster, and may have wanted the same
            try:
                (self._create if then is CREATED else self._update)(request)
            except RequestError as error:
                request.refuse(error.error)
        elif result.error:
            request.refuse(_refusal_of(result.error))
        else:
            self._hand_on(request, then)

    def _hand_on(self, request: ApiRequest, row: ApiRow) -> None:
        """Have the leader of the stream's channel answer, which knows what it holds, and listens to its subjects by then."""
        stream = self.node.meta.streams.by_name[request.named[0]]
        group = self.placement.group_number(stream.channel)
        if self.node.leads(group):
            mine = request._replace(stream=stream, groups=(META_GROUP, group))
            self._answer(mine, did_create=row is CREATED)
        else:
            subject = self.rights.own(f"{PREFIX}{row.subject.replace('*', stream.name)}").encode()
            self.outgoing.responses.append(publication(subject, b"", request.frame.reply))

    def _answer(self, request: ApiRequest, *, did_create: bool = False) -> None:
        """Answer with the stream. Where the newest messages of each subject stay, its index tells how many there are."""
        stream, created = request.known, {"did_create": True} if did_create else {}
        reading = self.leading.part(self.placement.group_number(stream.channel), StreamReading)

        def describe(_index: SubjectIndex | None) -> None:
            if stream.name in self.node.meta.streams.by_name:
                document = self.descriptions.document(stream)
                if not self.node.clustered:  # as NATS's own server alone answers
                    del document["cluster"]
                request.answer(**document, **created)
            else:
                request.refuse(UNAVAILABLE)

        if stream.config.history and reading is not None:
            reading.with_index(stream, describe, request.user)
        else:
            describe(None)

    # --- showing --------------------------------------------------------------------------------------------------------

    def _account(self, request: ApiRequest) -> None:
        if not self.rights.is_concerned(request.user):
            raise RequestError(not_permitted("no permission to anything"))
        streams = self._seen_by(request.user)
        held = [self.descriptions.state(one) for one in streams if self.descriptions.holds(one)]
        request.answer(
            memory=0,
            storage=_sum(held, "bytes"),
            reserved_memory=0,
            reserved_storage=0,
            streams=len(streams),
            consumers=_sum(held, "consumer_count"),
            limits={
                "max_memory": -1,
                "max_storage": -1,
                "max_streams": limits.STREAMS_MAX,
                "max_consumers": -1,
                "max_ack_pending": -1,
                "memory_max_stream_bytes": -1,
                "storage_max_stream_bytes": -1,
                "max_bytes_required": False,
            },
            api={"level": LEVEL, "total": 0, "errors": 0},
            **({"stan": self.node.config.cluster_id} if request.frame.payload == ASKS_SERVER else {}),
        )

    def _names(self, request: ApiRequest) -> None:
        found, offset = self._matching(request)
        page = [one.name for one in found[offset : offset + limits.STREAM_NAMES_PAGE]]
        request.answer(total=len(found), offset=offset, limit=limits.STREAM_NAMES_PAGE, streams=page or None)

    def _list(self, request: ApiRequest) -> None:
        found, offset = self._matching(request)
        page = found[offset : offset + limits.STREAMS_PAGE]
        told = [self.descriptions.document(one) for one in page if self.descriptions.holds(one)]
        missing = [one.name for one in page if not self.descriptions.holds(one)]
        more: dict[str, Any] = {"missing": missing} if missing else {}
        request.answer(total=len(found), offset=offset, limit=limits.STREAMS_PAGE, streams=told or None, **more)

    def _matching(self, request: ApiRequest) -> tuple[list[Stream], int]:
        """The streams that a request for a list asks for, by name, and the first that is wanted. Raises RequestError."""
        fields = Fields(request.document())
        offset, subject = max(0, fields.number("offset")), fields.text("subject")
        fields.end()
        found = self._seen_by(request.user)
        if subject:
            found = [one for one in found if one.overlaps(subject)]
        return found, offset

    def _seen_by(self, user: str) -> list[Stream]:
        """The streams that a user may see, by name."""
        streams = self.node.meta.streams.by_name
        return [streams[name] for name in sorted(streams) if self.rights.sees(user, streams[name])]

    # --- deleting -------------------------------------------------------------------------------------------------------

    def _delete(self, request: ApiRequest) -> None:
        stream, channel = request.known, self.channels.by_uid.get(request.known.uid)
        deletions = request.part(StreamDeletions)
        if channel is None or channel.restoring:
            raise RequestError(UNAVAILABLE)
        if sum(map(len, deletions.waiting.values())) >= limits.API_WAITING_MAX:
            raise RequestError(INSUFFICIENT)
        first = deletions.add(request)
        if stream.adopted:  # asked again with each request: what is forwarded may be lost
            change = pb.StreamChange(name=stream.name.encode(), changed=stream.changed)
            self.proposals.ask_meta(nobody_waits, stream=change)
        elif first and not channel.deleting:
            self.channels.removal.delete(channel, partial(self._dropped, deletions, stream.name))

    @staticmethod
    def _dropped(deletions: StreamDeletions, name: str, error: str) -> None:
        if error:
            deletions.ended(name, error)

    def _not_built(self, request: ApiRequest) -> None:
        request.refuse(ALONE if not self.node.clustered else UNSUPPORTED_IN_CLUSTER)


def _sum(states: Iterable[dict[str, Any]], name: str) -> int:
    return sum(int(state[name]) for state in states)


def _refusal_of(error: str) -> ApiError:
    """The refusal for an error of the metadata."""
    if error == OVERLAPS:
        return OVERLAP
    return TOO_MANY_STREAMS if error == TOO_MANY else invalid_config(error)
