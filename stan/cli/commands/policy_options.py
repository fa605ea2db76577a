"""The options of `stan policy set`, their names and help, one for each option of a policy, and the policy that they make."""

import inspect
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from stan_protocol import units
from stan_protocol.admin_types import DeliveryPolicy

from stan.cli.support.args import parsed
from stan.cli.support.common import EXIT_USAGE, CliError
from stan.cli.support.options import builds
from stan.policies import POLICY_OPTIONS, Form

BY_FLAG: Final = {f"--{option.key.replace('_', '-')}": option for option in POLICY_OPTIONS}
NOTHING: Final = f"Nothing is set: give one or more of {', '.join(BY_FLAG)}. To remove a policy: stan policy unset"
HELP: Final = {
    "--max-deliver": "Deliveries of a message, the first included; 0: no limit.",
    "--backoff": "Pauses after the first failure, the second, ...: 1s,10s,1m; the last one repeats. 0s: none.",
    "--max-hold": "For how long a client may put the ack wait off by saying that it works; 0s: no limit.",
    "--window": "adaptive: it shrinks while messages come back; or fixed.",
    "--dead-letter": "Where messages go that are given up: a channel, or what is added to the channel's name (.dlq); or none.",
    "--dead-letter-rate": "Most dead letters a minute before the position pauses; 0: no limit.",
    "--mode": "Of queue groups: failover: the first member gets all, while it is there; or shared.",
    "--order": "Of queue groups: key: messages of one key in order, to one member at a time; or any.",
    "--served-by": "Of plain subscriptions: replica: another node than the leader serves them; or leader.",
    "--delay": "Messages published to the channel are stored in that of --target so much later; 0s: no delay.",
    "--target": "Where delayed messages go in the end: a channel, or none.",
    "--max-late": "Delayed messages that are later than this are given up; 0s: none is.",
    "--ttl": "Messages of the channel are gone so long after they were stored; 0s: as its limits say.",
    "--compact": "last: of each key of the channel the newest message stays, others go in time; first: the oldest; or none.",
    "--min-age": "Messages younger than this are not compacted; 0s: they may be.",
    "--tombstone-max": "A tombstone goes after this, even if a position has not passed it; 0s: at once.",
    "--tier": "The channel's limits remove only what this named position has passed, as that of stan lake run; or none.",
    "--tier-stretch": "How many times its limits the channel keeps at most for its tier; 0: any number.",
    "--schema": "Published messages are checked: valid: they fit the channel's schema; known: they name a version of it; or off.",
    "--commit": "What an ack of a publish means, of channels made from now on: synced (a majority has it on disk) or replicated "
    "(a majority has it in memory).",
    "--compress": "zstd: the channel's messages are compressed where several are stored together; or none.",
}
METAVARS: Final = {
    Form.NUMBER: "NUMBER",
    Form.DURATION: "DURATION",
    Form.DURATIONS: "DURATIONS",
    Form.WORD: "WORD",
    Form.CHOICE: "WORD",
    Form.CHANNEL: "CHANNEL",
}


@dataclass(frozen=True, slots=True)
class GivenPolicy:
    """The policy that the options make; a command with a parameter of this type has all of them."""

    policy: DeliveryPolicy


def given_policy(**given: str) -> GivenPolicy:
    """Return the policy of the options, "" for those that are not given."""
    args = {option.field: _value(flag, given[option.field]) for flag, option in BY_FLAG.items() if given[option.field]}
    return GivenPolicy(DeliveryPolicy(**args))


given_policy.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter(
            option.field,
            inspect.Parameter.KEYWORD_ONLY,
            default="",
            annotation=Annotated[
                str, typer.Option(flag, metavar=METAVARS[option.form], help=HELP[flag], show_default=False)
            ],
        )
        for flag, option in BY_FLAG.items()
    ]
)
builds(given_policy, GivenPolicy)


def _value(flag: str, text: str) -> Any:
    option = BY_FLAG[flag]
    match option.form:
        case Form.NUMBER:
            value = parsed(flag, units.number, text)
            if value >= 1 << 32:
                raise CliError(f"{flag}: {text} is too much.", EXIT_USAGE)
            return value
        case Form.DURATION:
            return parsed(flag, units.duration_ns, text)
        case Form.DURATIONS:
            pauses = tuple(parsed(flag, units.duration_ns, pause.strip()) for pause in text.split(","))
            return pauses if any(pauses) else ()
        case Form.WORD:
            if text not in option.words:
                raise CliError(f"{flag}: {text!r} is neither {' nor '.join(reversed(option.words))}.", EXIT_USAGE)
            return text == option.words[True]
        case Form.CHOICE:
            if text not in option.words:
                raise CliError(f"{flag}: {text!r} is none of {', '.join(option.words)}.", EXIT_USAGE)
            return option.words.index(text)
        case Form.CHANNEL:
            return "" if text == "none" else text


def of_flag(complaint: str) -> str:
    """A complaint that begins with the key of an option, as one about its flag."""
    key = complaint.split(" ", 1)[0].rstrip(":")
    return f"--{key.replace('_', '-')}{complaint[len(key) :]}."
