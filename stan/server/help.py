"""The help text of `stan-server`, made from the table of flags; pure."""

from stan_protocol.units import go_duration

from stan.settings.flags import GROUPS
from stan.settings.go_flags import Flag, FlagKind, Value

_COLUMN = 46


def help_text() -> str:
    """The whole text, grouped as the original groups it; unlisted flags are left out."""
    lines = ["Usage: stan-server [options]", ""]
    for title, flags in GROUPS:
        lines.append(f"{title}:")
        lines += [_line(flag) for flag in flags if flag.help]
        lines.append("")
    lines += [
        "Durations are as 300ms, 1h30m, 10s. Sizes take the suffixes k, kb, m, mb, g, gb and so on.",
        "-x v, --x v, -x=v and --x=v are the same; switches are -x or -x=true, -x=false.",
        "",
    ]
    return "\n".join(lines)


def _line(flag: Flag) -> str:
    names = ", ".join(("-" if len(name) <= 3 else "--") + name for name in flag.names)
    left = f"    {names} {flag.argument}".rstrip()
    default = _default(flag)
    right = flag.help + (f" (default: {default})" if default else "")
    if flag.refused:
        right += " (not in this version)"
    return f"{left:<{_COLUMN}}  {right}"


def _default(flag: Flag) -> str:
    value: Value = flag.default
    if flag.kind is FlagKind.BOOL:
        return "true" if value else ""
    if flag.kind is FlagKind.DURATION and isinstance(value, int):
        return go_duration(value) if value else ""
    return str(value) if value else ""
