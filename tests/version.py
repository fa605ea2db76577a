"""The version, wherever it stands: `python -m tests.version` shows it, `python -m tests.version 0.2.0` writes it.

All distributions have one version, and need each other in just that one; the chart has it, too.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FORM = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
"""As Python has it: 0.2.0, 0.2.0rc1. Helm wants 0.2.0-rc1 for a chart."""


class Place(NamedTuple):
    """Where the version stands in a file: in the second group of each match."""

    file: str
    pattern: str
    chart: bool = False
    needed: bool = True  # it stands there at least once

    def found(self, root: Path) -> list[str]:
        """Versions that stand there."""
        return [match[2] for match in re.finditer(self.pattern, (root / self.file).read_text(encoding="utf-8"))]

    def write(self, root: Path, version: str) -> None:
        """Let this version stand there."""
        version = for_chart(version) if self.chart else version
        text = (root / self.file).read_text(encoding="utf-8")
        new = re.sub(self.pattern, lambda match: f"{match[1]}{version}{match[3]}", text)
        (root / self.file).write_text(new, encoding="utf-8")


PROJECTS = (
    "pyproject.toml",
    *(
        f"clients/{name}/pyproject.toml"
        for name in ("stan_protocol", "stan_client", "stan_lake", "stan_bench", "pyspark_stan", "stan_aio")
    ),
)
PLACES = (
    Place("stan/product.py", r'(?m)^(VERSION: Final = ")([^"]+)(")'),
    *(Place(file, r'(?m)^(version = ")([^"]+)(")') for file in PROJECTS[1:]),
    *(Place(file, r'("(?:stan-[a-z-]+|pyspark-stan)(?:\[[a-z,]+\])?==)([^"]+)(")', needed=False) for file in PROJECTS),
    Place("deploy/helm/stan/Chart.yaml", r"(?m)^(version: )(\S+)()", chart=True),
    Place("deploy/helm/stan/Chart.yaml", r'(?m)^(appVersion: ")([^"]+)(")'),
    Place("deploy/helm/stan/README.md", r"(registry\.example/stan:)(\d[\w.]*)()"),
    Place("deploy/helm/stan/ci/external-nats-values.yaml", r"(registry\.example/stan:)(\d[\w.]*)()"),
)


def for_chart(version: str) -> str:
    """The version as Helm wants it: with a hyphen before what comes before a release."""
    return re.sub(r"(?<=\d)(a|b|rc)(?=\d)", r"-\1", version)


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Show the versions that stand somewhere, or write one everywhere; the exit code."""
    if not arguments:
        for place in PLACES:
            sys.stdout.write(f"{place.file}: {', '.join(place.found(root))}\n")
        return 0
    (version,) = arguments
    if not FORM.fullmatch(version):
        sys.stderr.write(f"{version} is no version as 0.2.0 or 0.2.0rc1\n")
        return 2
    for place in PLACES:
        place.write(root, version)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
