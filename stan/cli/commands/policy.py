"""`stan policy`: how messages are delivered: how often, with which pauses, and what is in force for a durable."""

from typing import Annotated, Any, Final

import stan_client
import typer
from stan_client.admin import PolicyList
from stan_client.session import text_of

from stan import units
from stan.cli.commands.policies import format_policy
from stan.cli.support.args import Channel, Pattern, checked_channel, checked_pattern, parsed
from stan.cli.support.common import EXIT_USAGE, CliError, Target, group_of_commands
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look, on_cluster
from stan.policies import PolicyRule, options_of
from stan.protocol.proto import admin_pb2 as pb
from stan.units import NEVER, counted

NOTHING: Final = (
    "Nothing is set: give --max-deliver, --backoff, --max-hold or --window. To remove a policy: stan policy unset"
)
WINDOWS: Final = ("adaptive", "fixed")

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


def policies_table(found: PolicyList) -> Table:
    """One a line."""
    return Table(
        columns=("pattern", "durable", "policy", "from"),
        rows=[
            (text_of(one.pattern), text_of(one.name) or "all", format_policy(one.policy), _origin(one))
            for one in found.policies
        ],
        document={"policies": [document_of(one) for one in found.policies]},
        names=[text_of(one.pattern) for one in found.policies],
        foot=f"{len(found.policies):,} {'policy' if len(found.policies) == 1 else 'policies'}"
        if found.policies
        else "",
        empty="No policies.",
    )


def _origin(one: pb.PolicyStatus) -> str:
    return f"configuration, {text_of(one.where)}" if one.configured else "stan policy set"


@app.command("show")
@injected
def show(channel: Channel, *, durable: Durable = "", target: Target, view: View) -> None:
    """What is in force for a channel, or for one durable or queue group of it, and from where."""

    async def table(direct: stan_client.Direct) -> Table:
        return policy_table(channel, durable, await direct.admin.policies(checked_channel(channel), durable))

    look(target, view, table)


def policy_table(channel: str, durable: str, found: PolicyList) -> Table:
    """What is in force, and the policies that it comes from, the wider the earlier."""
    policy = found.in_force or pb.DeliveryPolicy()
    rows = [
        ("channel", channel),
        ("durable", durable or "any without a policy of its own"),
        ("max deliver", f"{policy.max_deliver:,}" if policy.max_deliver else "no limit"),
        ("back-off", " ".join(map(units.go_duration, policy.backoff.pauses)) or NEVER),
        ("max hold", units.go_duration(policy.max_hold) if policy.max_hold else "no limit"),
        ("window", WINDOWS[not policy.adaptive_window]),
    ]
    for one in found.policies:
        whose = f"{text_of(one.pattern)} {text_of(one.name)}".strip()
        rows.append(("set by", f"{whose}: {format_policy(one.policy)} ({_origin(one)})"))
    return Table(
        rows=rows,
        document={
            "channel": channel,
            "durable": durable,
            "in_force": document_of(policy),
            "policies": [document_of(one) for one in found.policies],
        },
        names=[text_of(one.pattern) for one in found.policies],
    )


@app.command("set")
@injected
def set_(
    pattern: Pattern,
    *,
    durable: Durable = "",
    max_deliver: Annotated[
        str,
        typer.Option(
            "--max-deliver", help="Deliveries of a message, the first included; 0: no limit.", show_default=False
        ),
    ] = "",
    backoff: Annotated[
        str,
        typer.Option(
            "--backoff",
            metavar="DURATIONS",
            help="Pauses after the first failure, the second, ...: 1s,10s,1m; the last one repeats. 0s: none.",
            show_default=False,
        ),
    ] = "",
    max_hold: Annotated[
        str,
        typer.Option(
            "--max-hold",
            metavar="DURATION",
            help="For how long a client may put the ack wait off by saying that it works; 0s: no limit.",
            show_default=False,
        ),
    ] = "",
    window: Annotated[
        str,
        typer.Option("--window", help="adaptive: it shrinks while messages come back; or fixed.", show_default=False),
    ] = "",
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Set a policy, in place of an earlier one of the same pattern and durable. What is not given is inherited."""
    policy = _policy(max_deliver, backoff, max_hold, window)
    rule = _rule(checked_pattern(pattern), durable, policy)
    if rule.empty:
        raise CliError(
            "Nothing is set: give --max-deliver, --backoff, --max-hold or --window. To remove it: stan policy unset",
            EXIT_USAGE,
        )
    if complaints := rule.complaints():
        raise CliError("\n".join(f"--{text.replace('_', '-', 1)}." for text in complaints), EXIT_USAGE)

    async def main(direct: stan_client.Direct) -> None:
        before = await _before(direct, pattern, durable)
        confirmation.require(f"Sets for {_whose(pattern, durable)}: {format_policy(policy)}.{before}")
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


def _policy(max_deliver: str, backoff: str, max_hold: str, window: str) -> pb.DeliveryPolicy:
    told: dict[str, Any] = {}
    if max_deliver:
        told["max_deliver"] = parsed("--max-deliver", units.number, max_deliver)
    if backoff:
        pauses = [parsed("--backoff", units.duration_ns, pause.strip()) for pause in backoff.split(",")]
        told["backoff"] = pb.Backoff(pauses=pauses if any(pauses) else [])
    if max_hold:
        told["max_hold"] = parsed("--max-hold", units.duration_ns, max_hold)
    if window:
        if window not in WINDOWS:
            raise CliError(f"--window: {window!r} is neither {' nor '.join(WINDOWS)}.", EXIT_USAGE)
        told["adaptive_window"] = window == "adaptive"
    if told.get("max_deliver", 0) >= 1 << 32:
        raise CliError(f"--max-deliver: {max_deliver} is too much.", EXIT_USAGE)
    return pb.DeliveryPolicy(**told)


def _rule(pattern: str, durable: str, policy: pb.DeliveryPolicy) -> PolicyRule:
    return PolicyRule(
        pattern=pattern,
        name=durable,
        **options_of(policy),
    )


def _whose(pattern: str, durable: str) -> str:
    return f"durable {durable} of {pattern}" if durable else pattern


async def _of(direct: stan_client.Direct, pattern: str, durable: str) -> pb.DeliveryPolicy | None:
    """What an operator has set for exactly this; None: nothing."""
    found = await direct.admin.policies(pattern=pattern)
    return next((one.policy for one in found.policies if text_of(one.name) == durable and not one.configured), None)


async def _before(direct: stan_client.Direct, pattern: str, durable: str) -> str:
    before = await _of(direct, pattern, durable)
    covered = sum(1 for _ in await direct.admin.channels(pattern))
    place = f" In place of: {format_policy(before)}." if before is not None else ""
    return f"{place} The pattern covers {counted(covered, 'channel')} now."
