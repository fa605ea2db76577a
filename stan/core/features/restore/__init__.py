"""Channels that come back from a backup."""

from collections.abc import Mapping

from stan.core.features import BrokerFeature
from stan.core.features.restore.requests import Handle, Restoring
from stan.core.leader.local_group import Leadership
from stan.core.requests.router import Handler


class RestoreFeature(BrokerFeature):
    """Restores of channels."""

    def handlers(self) -> Mapping[str, Handler]:
        """Requests of `stan restore`."""
        return {
            "admin.restore_channel": lambda accepted: accepted.part(Restoring).channel(accepted),
            "admin.restore_rows": self._existing(Restoring.rows),
            "admin.restore_cursor": self._existing(Restoring.cursor),
            "admin.restore_delayed": self._existing(Restoring.delayed),
            "admin.restore_end": self._existing(Restoring.end),
        }

    def _existing(self, handle: Handle) -> Handler:
        """The handler of a request about a channel that is being restored."""
        leading = self.services.leading
        return self.parts.lookup.existing(
            lambda accepted, info: leading.leadership(info.group).part(Restoring).with_channel(handle, accepted, info)
        )

    def lead_group(self, leadership: Leadership) -> None:
        """Add the part that restores."""
        leadership.keep(Restoring(self.services, leadership, self.parts.channels, self.parts.publishing))
