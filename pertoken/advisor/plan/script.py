"""Commands of a plan as a shell script that stops before each line that destroys something.

A sentence, and a command with words to fill in, is a question whether it was done. A health check ends the script if a
server does not serve. Names of the fleet are quoted, so that none becomes a command.
"""

import re
import shlex
from collections.abc import Iterable, Iterator

from pertoken.advisor.changes.servers import PROCESSES
from pertoken.printable import literal

PROGRAMS = ("kubectl", "nvidia-smi", "aws", "gcloud", "az")
"""Programs that start a runnable line; every other line is a sentence for people."""
_ON_HOST = re.compile(r"on ([A-Za-z0-9][A-Za-z0-9._-]*): (.+)")
_WORDS = "KIND NAME NAMESPACE IMAGE SERVICE POD TEMPLATE ZONE GROUP OFFERING VCPU MEMORY TYPE COUNT"
_FILL_IN = re.compile(rf"\b({_WORDS.replace(' ', '|')}|[A-Z]+_ID)\b")
_LOOKUP = re.compile(r"INSTANCE=\$\((.+)\)")
"""A command that finds the id of the instance which the next line deletes."""
_UNUSED = re.compile(rf"on ([A-Za-z0-9][A-Za-z0-9._-]*): {re.escape(PROCESSES)}(?:  #.*)?")
_INSTANCE = "$INSTANCE"
_NO_INPUT = " < /dev/null"
"""Input of each program: standard input holds the answers of a person."""
_HEALTH = re.compile(r"curl [a-z -]+ http://ADDRESS(/[A-Za-z0-9/_-]*)(?:  # ADDRESS: (.*))?")
_DESTROYS = re.compile(r"\b(terminate-instances|delete|scale|stop|drain)\b| -mig [01]\b| -d[cg]i\b")
"""Commands that stop servers or delete something, wherever the word is."""
_HEAD = """\
# Read it before you run it. It asks about each step by hand, and before each line that stops or deletes something;
# any answer but y ends it. --yes gives every answer; a server that does not serve still ends it.
"""
_FUNCTIONS = """\
set -eu
case "${1-}" in
--yes) yes=yes ;;
'') yes=no ;;
*) echo "usage: $0 [--yes]" >&2; exit 2 ;;
esac

stop() {
    echo "$1; the lines below did not run." >&2
    exit 1
}

ask() { # TEXT QUESTION
    printf '%s\\n' "$1"
    [ "$yes" = no ] || return 0
    printf '%s [y/N] ' "$2"
    answer=
    read -r answer || stop 'There was no answer'
    case "$answer" in
    y | Y | yes) ;;
    *) stop 'It was declined' ;;
    esac
}

by_hand() { ask "By hand: $1" 'Is it done?'; }

before() { ask "Next: $1" 'Run it?'; }

serves() { # VARIABLE ADDRESSES PATH SERVERS
    addresses=$2
    if [ -z "$addresses" ] && [ "$yes" = no ]; then
        printf 'Address (host:port) of %s: ' "$4"
        read -r addresses || addresses=
    fi
    [ -n "$addresses" ] || stop "$1 is not set: the address (host:port) of $4"
    for address in $addresses; do
        case "$address" in
        *://*) ;;
        *) address=http://$address ;;
        esac
        curl --fail --silent --show-error --max-time 10 --output /dev/null "$address$3" ||
            stop "$address$3 does not answer"
        echo "$address serves."
    done
}

unused() { # HOST
    if ! processes=$(ssh "$1" 'PROCESSES' < /dev/null); then
        [ "$yes" = no ] || stop "The processes on $1 cannot be read"
        by_hand "Check that no process uses the devices of $1."
    elif [ -n "$processes" ]; then
        stop "Processes use the devices of $1"
    fi
}

exactly_one() {
    case "$INSTANCE" in
    '' | None | *[[:space:]]*) stop "Not exactly one instance was found: '$INSTANCE'" ;;
    esac
}
"""
_SERVERS = "each new server"

Steps = Iterable[tuple[str, tuple[str, ...], tuple[str, ...]]]


def script(comments: Iterable[str], steps: Steps) -> Iterator[str]:
    """Yield the lines of a script for steps: title, commands, and commands that undo them, which are comments."""
    body = list(_body(steps))
    yield "#!/bin/sh"
    yield from (f"# {literal(comment)}" for comment in comments)
    yield from _HEAD.splitlines()
    variables = [match[1] for line in body if (match := re.match(r"serves (ADDRESS_\d+) ", line))]
    if variables:
        yield f"# {', '.join(variables)}: environment variables with the addresses of the servers that are checked, as"
        yield "# host:port, several separated by spaces; it asks for those that are not set."
    yield from _FUNCTIONS.replace("PROCESSES", PROCESSES).splitlines()
    yield from body


def _body(steps: Steps) -> Iterator[str]:
    checks = 0
    for number, (title, commands, undo) in enumerate(steps, 1):
        yield from ("", f"# Step {number}: {literal(title)}")
        for line in commands:
            checks += _HEALTH.fullmatch(line) is not None
            yield from shell_lines(line, checks)
        yield from (f"# undo: {literal(line)}" for line in undo)


def shell_lines(line: str, check: int = 1) -> tuple[str, ...]:
    """Return one line of a plan for the script; `check` is the number of its health check."""
    if health := _HEALTH.fullmatch(line):
        variable = f"ADDRESS_{check}"
        servers = literal((health[2] or _SERVERS).removeprefix("host:port of "))
        return (f'serves {variable} "${{{variable}-}}" {health[1]} {shlex.quote(servers)}',)
    if unused := _UNUSED.fullmatch(line):
        return (f"unused {unused[1]}",)
    if lookup := _LOOKUP.fullmatch(line):
        command = _command(lookup[1])
        return (_by_hand(line),) if command is None else (f"INSTANCE=$({command}{_NO_INPUT})", "exactly_one")
    command = _command(line)
    if command is None:
        return (_by_hand(line),)
    if not _DESTROYS.search(command):
        return (command + _NO_INPUT,)
    shown = shlex.quote(command.removesuffix(f'"{_INSTANCE}"'))
    return (f"before {shown}" + f'"{_INSTANCE}"' * command.endswith(f'"{_INSTANCE}"'), command + _NO_INPUT)


def _by_hand(line: str) -> str:
    return f"by_hand {shlex.quote(literal(line))}"


def _command(line: str) -> str | None:
    """Return a command quoted for a shell; None for a sentence, and for a command with words to fill in."""
    on_host = _ON_HOST.fullmatch(line)
    try:
        words = shlex.split(on_host[2] if on_host else line, comments=True)
    except ValueError:
        return None
    command = shlex.join(words)
    if not words or words[0] not in PROGRAMS or _FILL_IN.search(command) or literal(command) != command:
        return None
    if words[-1] == _INSTANCE and not on_host:
        command = f'{shlex.join(words[:-1])} "{_INSTANCE}"'
    return f"ssh {on_host[1]} {shlex.quote(command)}" if on_host else command
