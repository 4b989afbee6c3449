"""python -m irnic: the command irnic."""

import os
import sys

from . import program

if __name__ == "__main__":
    try:
        path = program()
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit("irnic: {}: {}".format(path if error.errno else "python -m irnic", error.strerror or error))
