"""`python -m tests.store.committing FOLDER FIRST`: ticks into a folder, each printed on stdout once it is stored."""

import sys

from pertoken.store.connect.location import locate
from pertoken.store.write.writer import Writer
from tests.store.filled import filled_tick

if __name__ == "__main__":
    with Writer(locate(sys.argv[1])) as writer:
        n = int(sys.argv[2])
        while True:
            writer.commit(filled_tick(n))
            print(n, flush=True)
            if n % 6 == 0:
                writer.roll_up()
            if n % 40 == 0:
                writer.flush_high_water_mark()
            n += 1
