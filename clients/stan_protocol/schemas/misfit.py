"""Data that does not fit a schema, and where: paths grow by a link at each level, and become text only in a refusal."""

Path = tuple["Path", str | int] | None
"""The place of a value: the place of its container, and its name or number there; None: the whole datum."""


class Misfit(Exception):  # noqa: N818 - never seen outside
    """Data does not fit at *path*."""

    def __init__(self, path: Path, why: str) -> None:
        names: list[str] = []
        while path is not None:
            path, name = path
            names.append(f"/{name}")
        super().__init__(f"{''.join(reversed(names)) or '/'}: {why}")
