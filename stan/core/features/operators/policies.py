"""Requests about policies of delivery, answered by the leader of the metadata: set one, list them, tell what is in force."""

from stan_protocol import refusals
from stan_protocol.patterns import valid_name
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.refusals import go_quote
from stan_protocol.schemas import json_data

from stan import limits
from stan.core.base.names import raw, text
from stan.core.metadata.policies import row_of, shown_policy
from stan.core.requests.channel_lookup import HEAD_ROOM, ITEM_ROOM
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.policies import COMMITS, VALID, PolicyRule, options_of

OTHER_COMMIT = (
    "commit: channel {} is there and {}: a policy is for channels that are made later, and one that is empty is changed by "
    "stan channel commit"
)
NO_LIBRARY = refusals.SCHEMA_LIBRARY_MISSING.format(json_data.MISSING)


def _rule_of(request: pb.SetPolicyRequest) -> PolicyRule:
    return PolicyRule(pattern=text(request.pattern), name=text(request.name), **options_of(request.policy))


def _status(rule: PolicyRule) -> pb.PolicyStatus:
    return pb.PolicyStatus(
        pattern=raw(rule.pattern),
        name=raw(rule.name),
        policy=shown_policy(rule),
        configured=bool(rule.where),
        where=raw(rule.where),
    )


class PolicyRequests:
    """Handles operators' requests about policies."""

    def __init__(self, services: Services) -> None:
        self.nats, self.node, self.placement = services.nats, services.node, services.placement

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {"admin.set_policy": self._set, "admin.policies": self._list}

    def _set(self, accepted: AcceptedRequest) -> None:
        rule = _rule_of(accepted.request)
        complaints = rule.complaints() + self._changes_commit(rule)
        if complaints:
            accepted.refuse(refusals.POLICY_REFUSED.format("; ".join(complaints[: limits.POLICY_COMPLAINTS_MAX])))
        elif self.node.meta.info is None:
            accepted.busy()
        elif rule.schema == VALID and not json_data.AVAILABLE:
            accepted.refuse(NO_LIBRARY)
        else:
            accepted.change_meta(lambda result: {"changed": int(result.policies_changed)}, set_policy=row_of(rule))

    def _changes_commit(self, rule: PolicyRule) -> list[str]:
        """The complaint about a policy that says of one channel, which exists, that its acks mean something else. One of several
        channels is about those that are made from then on."""
        channels = self.node.meta.channels
        if rule.commit is None or rule.commit >= len(COMMITS):
            return []
        parted = channels.parted.by_name.get(raw(rule.pattern))
        there = filter(None, map(channels.get, [raw(rule.pattern)] if parted is None else parted.names()))
        other = {self.node.meta.commit_of_channel(info) for info in there} - {rule.commit}
        return [OTHER_COMMIT.format(go_quote(rule.pattern), COMMITS[now]) for now in sorted(other)]

    def _list(self, accepted: AcceptedRequest) -> None:
        request: pb.PoliciesRequest = accepted.request
        if (request.channel and not valid_name(text(request.channel), wildcards=False)) or (
            request.name and not request.channel
        ):
            accepted.refuse(refusals.INVALID_ADMIN)
            return
        policies = self.placement.policies
        response = pb.PoliciesResponse()
        if request.channel:
            rules = policies.concerning(request.channel, request.name)
            response.in_force.CopyFrom(shown_policy(policies.of(request.channel, request.name)))
        else:
            rules = [rule for rule in policies.rules if not request.pattern or raw(rule.pattern) == request.pattern]
        room = self.nats.payload_bytes_max - HEAD_ROOM
        page = min(request.max or limits.REPORT_ITEMS_MAX, limits.REPORT_ITEMS_MAX)
        for rule in rules[request.after : request.after + page]:
            shown = _status(rule)
            room -= shown.ByteSize() + ITEM_ROOM
            if room < 0 and response.policies:
                break
            response.policies.append(shown)
        response.more = request.after + len(response.policies) < len(rules)
        accepted.answer_with(response)
