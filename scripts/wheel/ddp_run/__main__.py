"""python -m ddp_run: becomes ddp-run, with this Python for scripts. Imports nothing that Python has not loaded already."""

import os
import sys

# Next to the interpreter; in the environment that holds this package; pip install --user; pip install --target.
_SITE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PLACES = (os.path.dirname(sys.executable), sys.prefix + "/bin",
           os.path.dirname(os.path.dirname(os.path.dirname(_SITE))) + "/bin", _SITE + "/bin")


def main():
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    for place in _PLACES:
        program = place + "/ddp-run"
        if os.access(program, os.X_OK):
            os.execv(program, ["ddp-run", *sys.argv[1:]])
    sys.exit(f"error: ddp-run is in none of {', '.join(_PLACES)}; pip install --force-reinstall ddp-run")


main()
