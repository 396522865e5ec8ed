"""Runs scripts as programs, one after the other, each in a fork of this process, which has imported
what most need.

Reads a line for each script, ``[script, folder, start]`` as JSON; writes its exit status when it
has ended, and its output into ``output.txt`` in the folder. A script runs as ``__main__`` and ends
as a program ends, its exit handlers included; ``start`` is how its workers start where it does not
say so.
"""

import gc
import importlib.util
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

from vecwrap.backends.workers import options, process

NEEDED = (
    "vecwrap.pipeline.build",
    "vecwrap.wrappers.atari",
    "ale_py",
    "cv2",
    "matplotlib",
    "stable_baselines3",
)


def become(script, folder, start):
    """Be the program that a script is."""
    check = options.check_start_method
    process.check_start_method = lambda method: check(method or start)
    os.chdir(folder)
    output = os.open("output.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [script]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception:
        traceback.print_exc()
        sys.exit(1)


def serve():
    for name in NEEDED:
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    gc.freeze()  # a program that collects garbage would copy all of it
    for line in iter(sys.stdin.readline, ""):
        script, folder, start = json.loads(line)
        child = os.fork()
        if child == 0:
            become(script, folder, start)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
