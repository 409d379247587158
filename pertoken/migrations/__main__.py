"""`python -m pertoken.migrations GROUP DB`: upgrade in a process of its own, so that an agent never loads Alembic."""

import sys

from pertoken.errors import CORRUPT_STATUS, CorruptStore, PertokenError
from pertoken.migrations import upgrade
from pertoken.store.connect.location import locate

if __name__ == "__main__":
    group, db = sys.argv[1:]
    try:
        upgrade(locate(db), group)
    except CorruptStore as error:
        print(error, file=sys.stderr)
        sys.exit(CORRUPT_STATUS)
    except PertokenError as error:
        sys.exit(str(error))
