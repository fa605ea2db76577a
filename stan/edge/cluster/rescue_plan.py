"""The plan of a rescue: the survivors' findings, the copy of each group that goes on, and possible losses. Pure.

    findings of each survivor ─► every group: has it its majority? ─► if not: the copy that goes on, alone, by a forced entry

Promises: the same findings give the same plan on every machine, whatever their order. A group of which a majority survives, in
every configuration that a survivor knows, is not in the plan. The copy that goes on has everything that a survivor knows to be
committed; of such copies it is the newest (last term, last entry).
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, Self

from stan_protocol.scalars import GroupId

from stan.core.services.node import META_GROUP
from stan.edge.cluster.membership import EPOCH_BITS, epoch_name, epoch_number
from stan.errors import StanError
from stan.raft.placement import heaviest, place

FINDINGS = "findings of a node for stan cluster rescue, format 1"
_CHECKSUM = "checksum"


class RescueError(StanError):
    """The cluster cannot, or must not, be rescued like that; the text has the reason and the remedy."""


@dataclass(frozen=True, kw_only=True)
class FoundCopy:
    """A survivor's copy of one group."""

    last_index: int
    last_term: int
    term: int  # the newest that the member knows
    committed: int  # this entry, and those before it, are known to be committed
    committed_term: int  # of that entry; 0: the log does not have it any more
    terms: list[list[int]]  # the first entry of each term from `committed` on: index, term
    configured: int  # the entry with the voters
    voters: list[str]
    changes: list[list[str]]  # voters in later entries, which need not be committed
    votes: bool  # its vote counts: it has forgotten nothing
    whole: bool  # no entry is missing in it, and its state fits
    channels: dict[str, int]  # by name: the last sequence
    uids: dict[
        int, str
    ]  # numbers of the channels that the log or the state names; with the name of each, "" if it is not known


@dataclass(frozen=True, kw_only=True)
class SurvivorFindings:
    """The findings in a survivor's data directory."""

    node: str
    cluster_id: str
    identity: str  # of the cluster; "" if the directory does not know it
    raft_groups: int  # with which the cluster was founded
    replicas: int
    names: list[str]  # the nodes of the cluster, sorted
    founders: list[str]
    version: int  # of the names
    nodes_version: int  # the newest in the metadata, committed or not
    next_uid: int  # number of the next channel, as the metadata has it
    names_taken: list[str]  # of channels, in the metadata
    epoch: int
    copies: dict[int, FoundCopy]
    unfinished: dict[str, Any] | None = None  # the plan of a rescue that was begun here
    pool: int = 0  # groups that there are since the pool has grown, by directory or metadata; 0: it has not

    def document(self) -> dict[str, Any]:
        """Return the findings as JSON."""
        fields = asdict(self)
        return {"what": FINDINGS, **fields, _CHECKSUM: _sum(fields)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `document`. Raises RescueError."""
        fields = {key: value for key, value in document.items() if key not in ("what", _CHECKSUM)}
        if document.get("what") != FINDINGS or document.get(_CHECKSUM) != _sum(fields):
            raise RescueError("not the findings of a node, or they were changed")
        copies = {
            int(number): FoundCopy(**{**copy, "uids": {int(uid): name for uid, name in copy["uids"].items()}})
            for number, copy in fields["copies"].items()
        }
        return cls(**{**fields, "copies": copies})


@dataclass(frozen=True, kw_only=True)
class ForcedGroup:
    """A group that goes on with one copy."""

    group: int
    chosen: str
    index: int  # of the entry that makes the chosen node the only voter
    term: int
    last_term: int  # of the entry before it
    voters: list[str]  # before the rescue
    gone: list[str]  # those of them that are gone
    nothing_left: bool = False  # no survivor had a copy: the group begins empty
    # Of the metadata: channels with messages or positions in other groups that its copy does not know (any more), in
    # the order of their numbers: name, group. A name of "" stands for an unknown one.
    channels: list[list[Any]] = field(default_factory=list)

    @property
    def last_index(self) -> int:
        """The newest entry that stays."""
        return self.index - 1


@dataclass(frozen=True, kw_only=True)
class RescuePlan:
    """The work in the data directory of each survivor."""

    cluster_id: str
    survivors: list[str]
    lost: list[str]
    names: list[str]  # the nodes before the rescue
    founders: list[str]
    replicas: int
    nodes_version: int
    number: int  # number of rescues, including this one
    groups: list[ForcedGroup] = field(default_factory=list)
    pool: int = 0  # groups of channels that the directories count from then on; 0: the pool has not grown

    @property
    def epoch(self) -> int:
        """The epoch of the cluster after the rescue."""
        text = json.dumps(asdict(self), sort_keys=True).encode()
        mark = int.from_bytes(blake2b(text, digest_size=EPOCH_BITS // 8).digest(), "big")
        return self.number << EPOCH_BITS | mark

    @property
    def name(self) -> str:
        """The name of the rescue, for the operator."""
        return epoch_name(self.epoch)

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `document`."""
        groups = [ForcedGroup(**group) for group in document["groups"]]
        return cls(**{**document, "groups": groups})


def _sum(document: Mapping[str, Any]) -> int:
    """Checksum of a document, the same before and after it was written as JSON."""
    plain = json.loads(json.dumps(document))
    return zlib.crc32(json.dumps(plain, sort_keys=True).encode())


# --- planning ---------------------------------------------------------------------------------------------------------------


def plan(findings: Iterable[SurvivorFindings]) -> RescuePlan:
    """Return the plan for these survivors; the one that was begun, if a rescue was not finished in one of their directories.

    Raises RescueError: there is nothing to rescue, or it cannot be done."""
    survivors = sorted(findings, key=lambda one: one.node)
    begun = [RescuePlan.of(one.unfinished) for one in survivors if one.unfinished is not None]
    if begun:
        return _goes_on(survivors, begun)
    newest = _agreed(survivors)
    here = [one.node for one in survivors]
    pool = max(one.pool for one in survivors)
    placed = place(max(newest.raft_groups, pool), newest.founders or newest.names, newest.replicas)
    forced = [
        group for number, home in placed.items() if (group := _forced(number, survivors, home.voters)) is not None
    ]
    if not forced:
        raise RescueError(
            f"every group has its majority in {', '.join(here)}: start these nodes, and they go on; then replace the others "
            "with stan node remove and stan node add"
        )
    lost = {*newest.names, *(name for group in forced for name in group.gone)} - {*here}
    return RescuePlan(
        cluster_id=newest.cluster_id,
        survivors=here,
        lost=sorted(lost),
        names=newest.names,
        founders=newest.founders,
        replicas=newest.replicas,
        nodes_version=max(one.nodes_version for one in survivors),
        number=epoch_number(newest.epoch) + 1,
        groups=forced,
        pool=pool,
    )


def _goes_on(survivors: Seq[SurvivorFindings], begun: Seq[RescuePlan]) -> RescuePlan:
    """The plan that was begun. Raises RescueError if there are two, or a survivor has no part in it."""
    first = begun[0]
    if any(other != first for other in begun):
        raise RescueError("two different rescues were begun in these directories: give them one by one")
    for one in survivors:
        if one.node not in first.survivors or one.cluster_id != first.cluster_id:
            raise RescueError(f"the rescue that was begun knows of {', '.join(first.survivors)}, not of {one.node}")
    return first


def _agreed(survivors: Seq[SurvivorFindings]) -> SurvivorFindings:
    """Return the survivor that knows the newest nodes. Raises RescueError if the survivors are not of one cluster."""
    if not survivors:
        raise RescueError("no survivor was named")
    names = [one.node for one in survivors]
    if len(set(names)) != len(names):
        raise RescueError(f"two of these directories are of one node: {', '.join(names)}")
    newest = max(survivors, key=lambda one: one.version)
    for one in survivors:
        if (one.cluster_id, one.raft_groups) != (newest.cluster_id, newest.raft_groups) or (
            one.identity and newest.identity and one.identity != newest.identity
        ):
            raise RescueError(f"the directories of {one.node} and {newest.node} are of two clusters")
        if one.epoch != newest.epoch:
            raise RescueError(
                f"{one.node} and {newest.node} are not of the same rescue: one of them was left out of the last one, and has to "
                "begin with an empty directory"
            )
        if one.node not in newest.names:
            raise RescueError(
                f"{one.node} is not one of the nodes that vote ({', '.join(newest.names)}): a read replica or a removed node"
            )
    return newest


def _forced(number: GroupId, survivors: Seq[SurvivorFindings], placed: Seq[str]) -> ForcedGroup | None:
    """Return a group without its majority as it goes on; None if it has it. *placed*: its voters if no copy has them."""
    copies = {one.node: one.copies[number] for one in survivors if number in one.copies}
    configured = max((copy.configured for copy in copies.values()), default=0)
    voters = next((copy.voters for copy in copies.values() if copy.configured == configured and copy.voters), [*placed])
    later = [changed for copy in copies.values() for changed in copy.changes]
    counted = {name for name, copy in copies.items() if copy.votes}
    if all(2 * len(counted & set(named)) > len(named) for named in (voters, *later)):
        return None
    here = [one.node for one in survivors]
    everybody = {*voters, *(name for named in later for name in named)}
    gone = sorted(everybody - set(here))
    term = 1 + max((max(copy.term, copy.last_term) for copy in copies.values()), default=0)
    if number == META_GROUP and not any(one.identity for one in survivors):
        raise RescueError(
            "no survivor knows the cluster: its metadata is empty. Begin a new cluster with new directories"
        )
    if not copies:
        chosen = heaviest(number, here)[0]
        return ForcedGroup(
            group=number,
            chosen=chosen,
            index=1,
            term=term,
            last_term=0,
            voters=sorted(voters),
            gone=gone,
            nothing_left=True,
        )
    chosen = _newest(number, copies)
    copy = copies[chosen]
    return ForcedGroup(
        group=number,
        chosen=chosen,
        index=copy.last_index + 1,
        term=term,
        last_term=copy.last_term,
        voters=sorted(voters),
        gone=gone,
        channels=_forgotten_channels(next(one for one in survivors if one.node == chosen), survivors)
        if number == META_GROUP
        else [],
    )


def _forgotten_channels(chosen: SurvivorFindings, survivors: Iterable[SurvivorFindings]) -> list[list[Any]]:
    """Channels with a number in some group that the chosen copy of the metadata does not have: their creation was lost.

    Else the next created channel would get the number, and with it the messages and positions of another one."""
    known: dict[int, tuple[str, int]] = {}
    for one in survivors:
        for number, copy in sorted(one.copies.items()):
            for uid, name in copy.uids.items():
                if uid >= chosen.next_uid and number != META_GROUP and not (uid in known and known[uid][0]):
                    known[uid] = name, number
    used = {name.lower() for name in chosen.names_taken}
    channels: list[list[Any]] = []
    for uid in range(chosen.next_uid, max(known, default=0) + 1):
        name, group = known.get(uid, ("", 0))
        if uid in known and (not name or name.lower() in used):
            name = f"rescued.{uid}"
        used.add(name.lower())
        channels.append([name, group])
    return channels


def _newest(number: GroupId, copies: Mapping[str, FoundCopy]) -> str:
    """The node whose copy goes on. Raises RescueError if none can.

    A copy with a newer last term can lack an entry that another survivor knows to be committed: its last entry is of a leader
    that never committed it, before the one that committed the other. So first of all the known committed entries have to be
    there."""
    known = max(copies.values(), key=lambda copy: copy.committed)
    fit = {
        name: copy
        for name, copy in copies.items()
        if copy.whole
        and copy.last_index >= known.committed
        and _term_at(copy, known.committed) in (0, known.committed_term)
    }
    if not fit:
        raise RescueError(
            f"group {number}: no survivor has a copy without missing entries: {', '.join(sorted(copies))}. Restore the channels "
            "of a backup into a new cluster (stan restore)"
        )
    return max(sorted(fit), key=lambda name: (fit[name].last_term, fit[name].last_index))


def _term_at(copy: FoundCopy, index: int) -> int:
    """Term of an entry; 0 if the findings do not have it."""
    return max(((at, term) for at, term in copy.terms if at <= index), default=(0, 0))[1]


# --- reporting --------------------------------------------------------------------------------------------------------------


def losses(made: RescuePlan, findings: Iterable[SurvivorFindings]) -> list[str]:
    """Return lines for the operator: the possible losses of each group that goes on with one copy."""
    by_node = {one.node: one for one in findings}
    lines = []
    for group in made.groups:
        what = "the metadata" if group.group == META_GROUP else f"group {group.group}"
        lines.append(
            f"{what}: voters {', '.join(group.voters)}; gone: {', '.join(group.gone) or 'none, but too few of them can vote'}"
        )
        for name, number in group.channels:
            if name:
                lines.append(
                    f"  channel {name!r} of group {number} is in no copy of the metadata, and is created again"
                )
        if group.nothing_left:
            lines.append(f"  no survivor has a copy: ALL messages and positions of {what} are lost, it begins empty")
            continue
        lines.append(
            f"  goes on with the copy of {group.chosen}, which ends with entry {group.last_index} (term {group.last_term})"
        )
        lines.append(
            f"  acknowledged messages behind entry {group.last_index} of {what} may be lost if only the lost nodes held them"
        )
        for name in made.survivors:
            copy = by_node[name].copies.get(group.group) if name in by_node else None
            if copy is not None:
                channels = ", ".join(f"{channel}: {last}" for channel, last in sorted(copy.channels.items()))
                lines.append(
                    f"  {name}: last entry {copy.last_index} (term {copy.last_term}), known as committed {copy.committed}"
                    + (f"; last sequences: {channels}" if channels else "")
                )
    return lines
