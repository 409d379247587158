"""`pertoken agent release`: have the running agent let go of the drivers, so that they can be unloaded."""

import click

from pertoken.cli.options import db_option, settings_of

PATIENCE_S = 30.0


@click.command(short_help="Have the running agent let go of the drivers, so that they can be replaced.")
@click.option("--end", is_flag=True, help="Have it take them again now.")
@db_option
def release(config_file: str | None, db: str | None, end: bool) -> None:
    """Have the running agent let go of the GPU drivers, so that they can be unloaded or replaced.

    It goes on recording the host and the inference servers, and takes the drivers again after 10 minutes, or with
    --end. Returns when nothing of the agent holds a driver any more.
    """
    import os
    import time

    from pertoken.agent.daemon import LET_GO, RELEASED, TAKE
    from pertoken.errors import PertokenError
    from pertoken.store.place import AgentLock, place

    where = place(settings_of(config_file, db=db).db)
    lock = AgentLock(where.folder) if where.folder else None
    pid = lock.owner() if lock else None
    if lock is None or pid is None:
        raise PertokenError(f"no agent records in {where}: nothing of pertoken holds a driver for it")
    try:
        os.kill(pid, TAKE if end else LET_GO)
    except PermissionError:
        raise PertokenError(f"the agent (pid {pid}) belongs to somebody else: ask as that user or as root") from None
    deadline = time.monotonic() + PATIENCE_S
    while (lock.noted() == RELEASED) == end:
        if time.monotonic() > deadline:
            raise PertokenError(f"the agent (pid {pid}) did not do it within {PATIENCE_S:.0f} s: {lock.noted()}")
        time.sleep(0.1)
    click.echo("The drivers are read again." if end else "Nothing of the agent holds a GPU driver for 10 minutes.")
