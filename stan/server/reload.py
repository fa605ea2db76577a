"""SIGHUP: the configuration files are read again. Settings that can change at once do, the others are named in the log, and a
file with mistakes changes nothing.

Promises: every complaint is logged, those of nats-server about its part too, before anything changes; nats-server has to reload
its part whenever ours is right. Reloads come one after the other.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from stan.config import Config, Setting
from stan.edge.reloading import Reloading
from stan.settings.effective_settings import OF_NATS, OWN_NAMES
from stan.settings.nats_conf_check import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from stan.edge.log import ServerLog
    from stan.edge.nats.embedded import EmbeddedNats
    from stan.settings.settings import Parsed

LIVE: Final = frozenset(
    {
        *("max_channels", "max_subs", "max_msgs", "max_bytes", "max_age", "max_inactivity"),
        *("max_clients", "max_msg_bytes", "max_request_rate", "max_client_request_rate"),
        *("hb_interval", "hb_timeout", "hb_fail_count"),
        *("replace_durable", "stan_debug", "stan_trace"),
    }
)
"""Settings that a running server takes over, beside the limits of single channels and the policies; `Config.reloaded` has them,
too."""
_OF_NATS = frozenset(OF_NATS.values())
_OF_CHANNELS = "channels."
_OF_POLICIES = "policies."
EXTERNAL: Final = "Reload supported only for embedded NATS Server's configuration"


class ReloadPlan(NamedTuple):
    """The result of comparing settings for a reload."""

    config: Config  # the settings in force from now on
    changed: list[str]  # at once, a line each
    waiting: list[str]  # until a restart, a line each


def plan(running: Config, loaded: Config) -> ReloadPlan:
    """Decide which settings of *loaded* a server with the settings *running* adopts now, and which wait for a restart."""
    old = {setting.name: setting for setting in running.shown()}
    new = {setting.name: setting for setting in loaded.shown()}
    changed: list[str] = []
    waiting: list[str] = []
    in_force = dict(old)
    for name in (*new, *(name for name in old if name not in new)):
        # With partitioning, the options of channels decide which server a channel belongs to: these wait for a restart.
        live = name in LIVE or name.startswith(_OF_POLICIES)
        live = live or (name.startswith(_OF_CHANNELS) and not running.partitioning)
        theirs = name in _OF_NATS or name.startswith(OWN_NAMES)  # nats-server reports the fate of these
        live = live or theirs
        before, after = old.get(name), new.get(name)
        if live and after is None:
            del in_force[name]
        elif after is not None and (live or before == after or before is None):
            in_force[name] = after
        if (before and before.value) != (after and after.value) and not theirs:
            (changed if live else waiting).append(_sentence(name, before, after))
    if not waiting and _without_login(running) != _without_login(loaded):
        waiting.append("what is secret, or cannot be shown, of the connection to NATS or of the monitoring pages")
    return ReloadPlan(replace(running.reloaded(loaded), settings=tuple(in_force.values())), changed, waiting)


def _sentence(name: str, before: Setting | None, after: Setting | None) -> str:
    if after is None:
        return f"{name} is not set any more (was {before.value if before else ''})"
    was = f"was {before.value or 'empty'}, " if before else ""
    return f"{name} = {after.value or 'empty'} ({was}{after.source})"


def _without_login(config: Config) -> tuple[object, ...]:
    """Return the masked settings; the login of an embedded server changes with them."""
    return (config.nats if config.nats.urls else (), config.monitor, config.permissions, config.encryption)


class Reloader:
    """Reloads on request. All methods belong to one event loop."""

    def __init__(
        self,
        config: Config,
        again: "Callable[[], Parsed]",
        embedded: "EmbeddedNats | None",
        log: "ServerLog",
        reloading: Reloading,
    ) -> None:
        """*config*: in force now; *again* reads the command line and its files once more."""
        self._config = config
        self._again = again
        self._embedded = embedded
        self._log = log
        self._reloading = reloading
        self._task: asyncio.Task[None] | None = None
        self._requested = False

    def ask(self) -> None:
        """Reload; if a reload is under way, once more after it."""
        self._requested = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="reload")

    async def stop(self) -> None:
        """Cancel a running reload."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._requested:
            self._requested = False
            await self._reload()

    async def _reload(self) -> None:
        parsed = self._again()
        complaints, notices = [*parsed.complaints, *parsed.config.validate()], [*parsed.config.notices]
        if not complaints and self._embedded is not None:
            verdict = await asyncio.to_thread(check, parsed.config)
            complaints, notices = verdict.complaints, notices + verdict.notices
        for complaint in complaints:
            self._log.error(f"Not reloaded: {complaint}")
        if complaints:
            return
        if self._embedded is None:
            self._log.warning(EXTERNAL)
        planned = plan(self._config, parsed.config)
        self._config = planned.config
        for notice in notices:
            self._log.warning(notice)
        for line in planned.changed:
            self._log.info(f"Reloaded: {line}")
        for line in planned.waiting:
            self._log.warning(f"Needs a restart: {line}")
        if not planned.changed and not planned.waiting:
            self._log.info("Reloaded: no option of the streaming server has changed")
        self._log.set_levels(planned.config.log)
        self._reloading.update(planned.config)
        if self._embedded is not None:
            self._embedded.reload(parsed.config.embedded)
