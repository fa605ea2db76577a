"""Settings by key: those of the command line over those of files over defaults, each with where it comes from; pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from stan.settings.file_schema import ENVIRONMENT, FILE_ONLY
from stan.settings.flags import TABLE
from stan.settings.go_flags import Value
from stan.units import parse_size

if TYPE_CHECKING:
    from stan.settings.stream_conf import FileSettings


class SettingsReader:
    """Typed access to the settings; collects what cannot be used."""

    def __init__(
        self, flags: Mapping[str, Value], file: "FileSettings | None" = None, environ: Mapping[str, str] | None = None
    ) -> None:
        told = dict(file.values) if file else {}
        if "SDV" in flags:  # decides over both
            told = {key: value for key, value in told.items() if key not in {"stan_debug", "stan_trace"}}
        self.file = file
        self.given: dict[str, Value] = {**told, **flags}
        self.sources: dict[str, str] = {key: file.places[key].where for key in told if file and key in file.places}
        self.sources |= dict.fromkeys(flags, "flag")
        self._environment({} if environ is None else environ)
        self.complaints: list[str] = list(file.complaints) if file else []
        self.own_password = ""
        self._flags = flags
        self._defaults: dict[str, Value] = {**{flag.key: flag.default for flag in TABLE}, **FILE_ONLY}

    def _environment(self, environ: Mapping[str, str]) -> None:
        """Take keys of the environment, which win over all others, where they are asked for (STAN-SPEC 8.10)."""
        for key, (switch, names) in ENVIRONMENT.items():
            found = next((environ[name] for name in names if environ.get(name)), None)
            if found is not None and (self.given.get(switch) or self.given.get(key)):
                self.given[key], self.sources[key] = found, "environment"

    def name(self, key: str) -> str:
        """Return the setting's name as the user wrote it: `-dir`, `dir (stan.conf:3)`."""
        if self.file is None or key in self._flags or key not in self.file.places:
            return f"-{key}"
        name, where = self.file.places[key]
        return f"{name} ({where})"

    def flag(self, key: str) -> bool:
        """A switch."""
        return cast("bool", self._get(key))

    def number(self, key: str) -> int:
        """A number; durations are nanoseconds."""
        return cast("int", self._get(key))

    def text(self, key: str) -> str:
        """A text."""
        return cast("str", self._get(key))

    def path(self, key: str) -> Path | None:
        """A file or directory; None if there is none."""
        text = self.text(key)
        return Path(text) if text else None

    def size(self, key: str) -> int:
        """Bytes; a size that cannot be read is a complaint."""
        text = self.text(key)
        try:
            return parse_size(text)
        except ValueError:
            self.complaints.append(f"{key} should be a size, got '{text}'")
            return parse_size(str(self._defaults[key]))

    def _get(self, key: str) -> Value:
        return self.given.get(key, self._defaults[key])


def clustered(values: SettingsReader) -> bool:
    """Return True if the server is configured as a node of a cluster."""
    return any(values.flag(key) for key in ("clustered", "join", "replica"))
