"""torchft's lighthouse, where replicas find each other: prints its address, serves until its input ends."""

import importlib.util
import sys
import types

# The package without its __init__.py, which spends seconds on importing torch: the lighthouse needs none of it.
folders = importlib.util.find_spec("torchft").submodule_search_locations
sys.modules["torchft"] = types.ModuleType("torchft")
sys.modules["torchft"].__path__ = folders
from torchft._torchft import LighthouseServer  # noqa: E402

server = LighthouseServer("[::]:0", 2, join_timeout_ms=1000, quorum_tick_ms=50)
print(server.address(), flush=True)
sys.stdin.read()
