"""A program that holds a node: started by a test, which kills it and looks at what is left.

Prints one JSON line: the pids of the forkserver, the workers and everything they hid.
"""

from __future__ import annotations

import asyncio
import json
import sys

from workerbench import HIDE, SPAWNING, bench


async def main() -> None:
    async with bench() as made:
        pids = [made.node._forkserver.pid]
        for _ in range(3):
            worker = await made.start(**SPAWNING)
            pids.append(await made.pid(worker))
            pids += map(int, (await made.run(worker, HIDE)).split())
            made.send(worker, ("sleep", "600"))
        print(json.dumps(pids), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
