"""`stan-server` with few descriptors: `python -m tests.kit.few_files SOFT:HARD ...flags`; without HARD that stays as it is."""

import resource
import sys

from stan.server.main import main

if __name__ == "__main__":
    soft, _, hard = sys.argv.pop(1).partition(":")
    most = int(hard) if hard else resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), most))
    sys.exit(main())
