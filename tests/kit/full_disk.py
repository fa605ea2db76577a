"""`stan-server` on a disk that is full while a file exists: `python -m tests.kit.full_disk FILE ...flags`.

What a log, a snapshot or the manifest would need room for fails with ENOSPC then; everything else is the real server.
"""

import errno
import os
import sys
from pathlib import Path

from stan.log.files.disk import OsFiles
from stan.server.main import main


def fill_while_exists(path):
    """Let the operating system's files refuse to grow while *path* is there."""

    def when_there_is_room(call):
        def tried(*args):
            if path.exists():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*args)

        return tried

    for name in ("pwritev", "create", "link"):
        setattr(OsFiles, name, when_there_is_room(getattr(OsFiles, name)))


if __name__ == "__main__":
    fill_while_exists(Path(sys.argv.pop(1)))
    sys.exit(main())
