"""The page with all options of delivery policies."""

from stan_protocol.units import go_duration

from docs.generator.markdown import code, codes, page, shown, table
from stan.cli.commands.policy_options import BY_FLAG, HELP
from stan.policies import Form, PolicyOption


def value(option: PolicyOption) -> str:
    """The values of an option."""
    match option.form:
        case Form.NUMBER:
            return f"a number up to {option.most:,}"
        case Form.DURATION:
            return f"a duration up to {code(go_duration(option.most))}"
        case Form.DURATIONS:
            return f"durations, each up to {code(go_duration(option.most))}"
        case Form.WORD | Form.CHOICE:
            return codes(option.words)
        case Form.CHANNEL:
            return "a name, or `none`"


def policies() -> str:
    """The page."""
    rows = [
        (code(option.key), code(flag), value(option), shown(HELP[flag]))
        for flag, option in BY_FLAG.items()
        if not option.of_channel
    ]
    channel = [
        (code(option.key), code(flag), value(option), shown(HELP[flag]))
        for flag, option in BY_FLAG.items()
        if option.of_channel
    ]
    head = ("key of the file", "option of `stan policy set`", "value", "meaning")
    return page(
        "Policies",
        "A policy says how the messages of a pattern of channels are delivered, or those of one durable in them. "
        "It is set in the block `policies` of the configuration file, or with `stan policy set`. "
        "A narrow pattern wins over a wide one. See [policies of delivery](../features/policies.md).",
        "## For channels, and for single durables and queue groups",
        table(head, rows),
        "## For whole channels only",
        table(head, channel),
    )
