"""Settings by key: those of the command line over those of files over defaults, each with where it comes from; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from stan_protocol.units import parse_size

from stan.config import ChannelOverride, Setting
from stan.logins import Logins
from stan.permissions import Permissions
from stan.policies import PolicyRule
from stan.settings.file_schema import DEFAULTS, ENVIRONMENT, FILE_ONLY
from stan.settings.flags import TABLE
from stan.settings.go_flags import Value
from stan.settings.nats_conf import Document


class KeyPlace(NamedTuple):
    """Origin of a setting."""

    name: str
    where: str


@dataclass(slots=True)
class NatsPart:
    """The part of the configuration files for nats-server, and the facts that clients of it, such as we, have to know."""

    file: Path | None = None  # None: nothing is for it
    text: bytes | None = None  # its part of that file, which it reads instead
    places: tuple[str, ...] = ()  # of each line of that text, file and line
    entries: Document = field(default_factory=dict)  # that part
    names: dict[str, str] = field(default_factory=dict)  # the keys at the top of it, and where they are
    certificate: dict[str, Path] = field(default_factory=dict)  # its cert_file and key_file
    tls: bool = False  # it speaks TLS with clients ...
    verify: bool = False  # ... and wants to see their certificates
    cluster: bool = False  # it has a cluster block
    own_user: bool = False  # our own connection is among its users
    login: dict[str, str] = field(default_factory=dict)  # user, pass, auth that its clients need


@dataclass(slots=True)
class FileSettings:
    """The contents of the configuration files."""

    values: dict[str, Value] = field(default_factory=dict)  # by key of a flag, or of FILE_ONLY
    places: dict[str, KeyPlace] = field(default_factory=dict)
    channels: dict[str, ChannelOverride] = field(default_factory=dict)
    overrides: list[Setting] = field(default_factory=list)  # the same, and the policies, to be shown
    ignored: list[KeyPlace] = field(default_factory=list)  # without effect in this version, and no flag
    complaints: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    permissions: Permissions | None = None
    logins: Logins | None = None
    policies: list[PolicyRule] = field(default_factory=list)
    nats: NatsPart = field(default_factory=NatsPart)


_SDV = frozenset({"stan_debug", "stan_trace"})
"""Settings that the flag of that name decides over."""


class SettingsReader:
    """Typed access to the settings; collects unusable values."""

    def __init__(
        self, flags: Mapping[str, Value], file: FileSettings | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        """Without *file* the files are not read: nats-server will read all of its own."""
        self._flags = flags
        self._defaults: dict[str, Value] = {**{flag.key: flag.default for flag in TABLE}, **FILE_ONLY}
        if file is None:
            named = flags.get("config")
            file = FileSettings(nats=NatsPart(file=Path(str(named)) if named else None))
        values = {key: value for key, value in file.values.items() if "SDV" not in flags or key not in _SDV}
        self.file = file
        given = {**dict.fromkeys(_SDV, flags["SDV"]), **flags} if "SDV" in flags else flags
        self.given: dict[str, Value] = {**values, **given}
        self.sources: dict[str, str] = {key: file.places[key].where for key in values if key in file.places}
        self.sources |= dict.fromkeys(given, "flag")
        self._environment({} if environ is None else environ)
        self.complaints = list(file.complaints)
        self.own_password = ""

    def _environment(self, environ: Mapping[str, str]) -> None:
        """Take defaults, and keys, which win over all others, where a setting requires them (STAN-SPEC 8.10)."""
        for key, name in DEFAULTS.items():
            if key not in self.given and environ.get(name):
                self.given[key], self.sources[key] = environ[name], "environment"
        for key, (switch, names) in ENVIRONMENT.items():
            value = next((environ[name] for name in names if environ.get(name)), None)
            if value is not None and (self.given.get(switch) or self.given.get(key)):
                self.given[key], self.sources[key] = value, "environment"

    def name(self, key: str) -> str:
        """Return the setting's name as the user wrote it: `-dir`, `dir (stan.conf:3)`."""
        if key in self._flags or key not in self.file.places:
            return f"-{key}"
        name, where = self.file.places[key]
        return f"{name} ({where})"

    def flag(self, key: str) -> bool:
        """A switch."""
        return cast("bool", self._get(key))

    def number(self, key: str) -> int:
        """A number; durations are nanoseconds, sizes bytes, and a size that cannot be read is a complaint."""
        value = self._get(key)
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError:
            self.complaints.append(f"{key} should be a size, got '{value}'")
            return parse_size(str(self._defaults[key]))

    def text(self, key: str) -> str:
        """A text."""
        return cast("str", self._get(key))

    def path(self, key: str) -> Path | None:
        """A file or directory; None if there is none."""
        text = self.text(key)
        return Path(text) if text else None

    def option(self, kind: object, key: str, _default: object, *_bounds: int) -> object:
        """Give a field of `Config`; defaults are those of the flags."""
        if kind == Path | None:
            return self.path(key)
        return self.names(key) if kind == tuple[str, ...] else self.number(key) if kind is int else self._get(key)

    def names(self, key: str) -> tuple[str, ...]:
        """A list with commas."""
        return tuple(name for part in self.text(key).split(",") if (name := part.strip()))

    def _get(self, key: str) -> Value:
        return self.given.get(key, self._defaults[key])


def clustered(values: SettingsReader) -> bool:
    """Return True if the server is configured as a node of a cluster."""
    return any(values.flag(key) for key in ("clustered", "join", "replica"))
