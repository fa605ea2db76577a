"""`stan policy`: policies of delivery: how often, with which pauses, and those in force for a durable."""

from typing import Annotated

import stan_client
import typer
from stan_client.requests.admin import PolicyList
from stan_client.requests.names import raw
from stan_client.transport.session import text_of
from stan_protocol.admin_types import DeliveryPolicy, NodeStatus, PolicyStatus
from stan_protocol.channels import whole_of
from stan_protocol.patterns import matches
from stan_protocol.units import counted

from stan.cli.commands.policies import format_option, format_policy, without_effect
from stan.cli.commands.policy_options import NOTHING, GivenPolicy, of_flag
from stan.cli.support.args import Channel, Pattern, checked_channel, checked_pattern
from stan.cli.support.common import EXIT_USAGE, CliError, Target, group_of_commands
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look, on_cluster
from stan.policies import POLICY_OPTIONS, PolicyRule, given_options

Durable = Annotated[
    str,
    typer.Option(
        "--durable",
        metavar="NAME",
        help="Only of this durable or queue group; durable queue groups are called DURABLE:GROUP.",
        show_default=False,
    ),
]

app = group_of_commands("Policies of delivery: how often, with which pauses, for how long.")


@app.command("list")
@injected
def list_(*, target: Target, view: View) -> None:
    """All policies, the wider a pattern the earlier; a later one has the last word."""

    async def table(direct: stan_client.Direct) -> Table:
        return policies_table(await direct.admin.policies())

    look(target, view, table)


def policies_table(listed: PolicyList) -> Table:
    """Return policies, one a line."""
    return Table(
        columns=("pattern", "durable", "policy", "from"),
        rows=[(one.pattern, one.name or "all", format_policy(one.policy), _origin(one)) for one in listed.policies],
        document={"policies": [document_of(one) for one in listed.policies]},
        names=[one.pattern for one in listed.policies],
        foot=f"{len(listed.policies):,} {'policy' if len(listed.policies) == 1 else 'policies'}"
        if listed.policies
        else "",
        empty="No policies.",
    )


def _origin(policy: PolicyStatus) -> str:
    return f"configuration, {policy.where}" if policy.configured else "stan policy set"


@app.command("show")
@injected
def show(channel: Channel, *, durable: Durable = "", target: Target, view: View) -> None:
    """What is in force for a channel, or for one durable or queue group of it, and from where."""

    async def table(direct: stan_client.Direct) -> Table:
        return policy_table(channel, durable, await direct.admin.policies(checked_channel(channel), durable))

    look(target, view, table)


def policy_table(channel: str, durable: str, listed: PolicyList) -> Table:
    """Return the policy in force, and the policies that it comes from, the wider the earlier."""
    policy = listed.in_force or DeliveryPolicy()
    given = given_options(policy)
    rows = [
        ("channel", channel),
        ("durable", durable or "any without a policy of its own"),
        *(
            (option.label, format_option(option, given[option.field]) or option.zero)
            for option in POLICY_OPTIONS
            if option.field in given
        ),
    ]
    for one in listed.policies:
        whose = f"{one.pattern} {one.name}".strip()
        rows.append(("set by", f"{whose}: {format_policy(one.policy)} ({_origin(one)})"))
    return Table(
        rows=rows,
        document={
            "channel": channel,
            "durable": durable,
            "in_force": document_of(policy),
            "policies": [document_of(one) for one in listed.policies],
        },
        names=[one.pattern for one in listed.policies],
    )


@app.command("set")
@injected
def set_(
    pattern: Pattern,
    *,
    durable: Durable = "",
    given: GivenPolicy,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Set a policy, in place of an earlier one of the same pattern and durable. What is not given is inherited."""
    policy = given.policy
    rule = PolicyRule(pattern=checked_pattern(pattern), name=durable, **given_options(policy))
    if rule.empty:
        raise CliError(NOTHING, EXIT_USAGE)
    if complaints := rule.complaints():
        raise CliError("\n".join(map(of_flag, complaints)), EXIT_USAGE)

    async def main(direct: stan_client.Direct) -> None:
        before = await _before(direct, pattern, durable)
        idle = without_effect(policy, await _nodes(direct))
        confirmation.require(f"Sets for {_whose(pattern, durable)}: {format_policy(policy)}.{before} {idle}".rstrip())
        changed = (await direct.admin.set_policy(pattern, policy, name=durable)).changed
        done(f"The policy of {_whose(pattern, durable)} is {'set' if changed else 'this one already'}.")

    on_cluster(target, main)


@app.command("unset")
@injected
def unset(pattern: Pattern, *, durable: Durable = "", target: Target, confirmation: Confirmation) -> None:
    """Remove a policy that was set; those of the configuration stay."""

    async def main(direct: stan_client.Direct) -> None:
        before = await _of(direct, pattern, durable)
        if before is None:
            raise CliError(f"Nobody has set a policy of {_whose(pattern, durable)}. All of them: stan policy list")
        confirmation.require(f"Removes the policy of {_whose(pattern, durable)}: {format_policy(before)}.")
        await direct.admin.set_policy(pattern, None, name=durable)
        done(f"The policy of {_whose(pattern, durable)} is removed.")

    checked_pattern(pattern)
    on_cluster(target, main)


def _whose(pattern: str, durable: str) -> str:
    return f"durable {durable} of {pattern}" if durable else pattern


async def _of(direct: stan_client.Direct, pattern: str, durable: str) -> DeliveryPolicy | None:
    """Return the operator's policy for exactly this; None: there is none."""
    listed = await direct.admin.policies(pattern=pattern)
    return next((one.policy for one in listed.policies if one.name == durable and not one.configured), None)


async def _nodes(direct: stan_client.Direct) -> list[NodeStatus]:
    """Return the nodes' reports; none for a user without the right to them."""
    try:
        return (await direct.admin.nodes()).answers
    except stan_client.ServerError:
        return []


async def _before(direct: stan_client.Direct, pattern: str, durable: str) -> str:
    before = await _of(direct, pattern, durable)
    place = f" In place of: {format_policy(before)}." if before is not None else ""
    return place + covered(
        pattern,
        [channel.name for channel in await direct.admin.channels(pattern)],
        [whole.channel for whole in await direct.admin.parts()],
    )


def covered(pattern: str, names: list[str], with_parts: list[str]) -> str:
    """Return in words how many channels a policy applies to. *names*: those that the pattern matches; *with_parts*: all channels
    that have parts, which have their policies as a whole."""
    wholes = [text_of(whole_of(raw(name))) for name in names]
    own = sum(whole not in with_parts for whole in wholes) + sum(matches(pattern, whole) for whole in with_parts)
    text = f" The pattern covers {counted(own, 'channel')} now."
    astray = sorted({whole for whole in wholes if whole in with_parts and not matches(pattern, whole)})
    if astray:
        text += (
            f" It does not hold for the parts of {', '.join(astray)}: they have the policy of their channel as a whole."
        )
    return text
