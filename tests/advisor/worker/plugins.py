"""Plugins that misbehave: those that fail, with the expected reason, and those that succeed but leave things behind."""

import os
from pathlib import Path

from tests.advisor.hostile import HOSTILE
from tests.advisor.sources import source

MARK = f"pt-{os.getpid()}"
"""Name of processes that hostile rules start."""
NAME_PROCESS = f"""
import ctypes
def named():
    ctypes.CDLL(None).prctl(15, {MARK!r}.encode(), 0, 0, 0)
"""
LOOP = "while True:\n    pass"
STUBBORN = "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass"
NO_ALARM = "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nsignal.setitimer(signal.ITIMER_REAL, 0)\n"
DAEMON = """import os, time
named()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            time.sleep(1)
    os._exit(0)
yield skip("started", "a process was started")"""


def plugin(body: str = "yield skip('nothing', 'nothing to do')", before: str = "") -> str:
    return source(body, "seen, fleet, market", HOSTILE, before)


def at_import(code: str) -> str:
    return plugin(before=code)


BROKEN: dict[str, tuple[str, str]] = {
    "an import error": (at_import("import no_such_module"), "No module named 'no_such_module'"),
    "a syntax error": ("def :", "SyntaxError"),
    "no rule": ("x = 1", "defines no rule"),
    "SystemExit at import": (at_import("raise SystemExit(3)"), "SystemExit: 3"),
    "os._exit at import": (at_import("import os; os._exit(0)"), "ended its process before it was loaded"),
    "a killed import": (at_import("import os; os.kill(os.getpid(), 9)"), "was ended by SIGKILL before it was loaded"),
    "a loop at import": (at_import(LOOP), "took longer than 1 s before it was loaded"),
    "a loop at import without an alarm": (at_import(NO_ALARM + STUBBORN), "took longer than 4 s before it was loaded"),
    "SystemExit": (plugin("raise SystemExit(3)\nyield"), "SystemExit: 3"),
    "KeyboardInterrupt": (plugin("raise KeyboardInterrupt\nyield"), "KeyboardInterrupt"),
    "os._exit": (plugin("import os\nos._exit(0)\nyield"), "the rule ended its process"),
    "os._exit with a status": (plugin("import os\nos._exit(7)\nyield"), "ended its process with status 7"),
    "abort": (plugin("import os\nos.abort()\nyield"), "was ended by SIGABRT"),
    "a loop": (plugin(f"{LOOP}\nyield"), "took longer than 1 s"),
    "a loop that swallows every error": (plugin(f"{STUBBORN}\nyield"), "took longer than 1 s"),
    "a loop without an alarm": (plugin(f"{NO_ALARM}{STUBBORN}\nyield"), "took longer than 2 s"),
    "4 GiB": (plugin("x = bytearray(4 * 2**30)\nyield"), "MemoryError"),
    "4 GiB of shared memory": (plugin("import mmap\nmmap.mmap(-1, 4 * 2**30)\nyield"), "Cannot allocate memory"),
    "a million proposals": (
        plugin("for n in range(10**6):\n    yield fleet.services[0].but(max_num_seqs=n + 1)"),
        "more than 1000 proposals",
    ),
    "a proposal without end": (
        plugin("yield fleet.services[0].serving(requests_per_s=__import__('pertoken.rule').rule.to(1, 'x' * 10**7))"),
        "more than 4,194,304 bytes",
    ),
    "prints without end": (plugin("while True:\n    print('x' * 10**5)\nyield"), "File too large"),
    "a change of what it is given": (
        plugin(
            "object.__setattr__(fleet, 'services', ())\nobject.__setattr__(market, 'all_offers', 5)\n"
            "seen._measured.clear()\nyield fleet.services[0]"
        ),
        "IndexError",
    ),
    "NaN": (plugin("yield fleet.services[0].but(gpu_memory_utilization=float('nan'))"), "is not possible"),
    "a negative price": (
        plugin(
            "from pertoken.rule import Commitment\n"
            "made = Commitment('aws', None, 'p5.48xlarge', 1, 1, 1)\n"
            "object.__setattr__(made, 'nano_usd_per_instance_hour', -5)\nyield fleet.commit(made)"
        ),
        "0 or more",
    ),
    "a wrong type": (plugin("yield 42"), "a rule yields a Deployment, a Service, a Fleet or skip"),
    "no words": (
        plugin("class Mute(Exception):\n    def __repr__(self): raise self\n    __str__ = __repr__\nraise Mute\nyield"),
        "Mute",
    ),
    "closed files": (plugin("import os\nos.closerange(0, 100)\nyield"), "ended its process with status"),
    "another's message": (
        plugin("import os\nos.write(3, b'[' * 10**5 + b'\\n')\nyield skip('no', 'never')"),
        "returned an invalid message",
    ),
    "messages without end": (
        plugin("import os\nwhile True:\n    os.write(3, b'x' * 10**6)\nyield"),
        "returned",
    ),
    "an end of its parent": (
        plugin("import os, signal\nwhile True:\n    os.kill(os.getppid(), signal.SIGKILL)\nyield"),
        "was ended by SIGKILL",
    ),
    "an end of everything it sees": (
        plugin("import os\nassert os.getpid() < 1000, 'no namespace'\nwhile True:\n    os.kill(-1, 9)\nyield"),
        "was ended by SIGKILL",
    ),
    "an end of its group": (plugin("import os, signal\nos.killpg(0, signal.SIGKILL)\nyield"), "was ended by SIGKILL"),
    "an end of the advisor": (
        plugin(f"import os, signal\nos.kill({os.getpid()}, signal.SIGKILL)\nyield"),
        "Error",
    ),
    "a socket": (plugin("import socket\nsocket.socket()\nyield"), "Operation not permitted"),
    "a Unix socket": (plugin("import socket\nsocket.socket(socket.AF_UNIX)\nyield"), "Operation not permitted"),
    "a file elsewhere": (plugin(f"open({str(Path(__file__).parent / 'made')!r}, 'w')\nyield"), "Permission denied"),
    "a file cut off": (plugin(f"import os\nos.truncate({__file__!r}, 0)\nyield"), "Permission denied"),
}

HARMLESS: dict[str, str] = {
    "processes that outlive it": plugin(DAEMON, NAME_PROCESS),
    "many processes": plugin(
        "import os, time\nnamed()\nfor _ in range(20):\n    if os.fork() == 0:\n        time.sleep(999)\n"
        "yield skip('started', 'processes were started')",
        NAME_PROCESS,
    ),
    "processes that outlive its import": at_import(
        f"{NAME_PROCESS}\nimport os, time\nnamed()\nif os.fork() == 0:\n    os.setsid(); time.sleep(999)"
    ),
    "markup and control characters": plugin(
        r"yield skip('no', '[bold red]\x1b[31m\u202e[/] <script>\x07')" "\nprint('\\x1b]0;title\\x07[b]')"
    ),
    "a temporary file": plugin(
        "import tempfile\nwith tempfile.NamedTemporaryFile('w') as made:\n    made.write('x')\nyield skip('no', '-')"
    ),
    "threads that do not end": plugin(
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(999)).start()\nyield skip('no', 'never')"
    ),
}
