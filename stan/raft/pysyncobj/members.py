"""The members of a group as one member knows them: itself, the other voters, the observers, and its links. Pure."""

from collections.abc import Iterable

from stan.raft.pysyncobj.compat import Peer


class Members:
    """The voters of one configuration of a group and its observers, as seen by the member *me*."""

    def __init__(self, me: str, voters: Iterable[str], observers: Iterable[str]) -> None:
        names = set(voters)
        self.me = me
        self.is_voter = me in names  # this member is one of the voters
        self.others = {name: Peer(name) for name in sorted(names - {me})}  # the other voters
        self.observers = {name: Peer(name) for name in sorted(set(observers) - {me})}
        self.up: set[str] = set()  # peers with a link, whether they belong to the group or not
        self.majority = (len(self.others) + 1) // 2 + 1  # number of voters that form a quorum
