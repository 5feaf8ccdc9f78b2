"""API clients in their own process: api_clients.py PORT CLIENTS PAUSE.

Each requests the overview, PAUSE seconds after the previous answer. Prints `ready` after the first answers of all, and
at the end the numbers of answers and of failures.
"""

from __future__ import annotations

import asyncio
import os
import sys

PATH = "/v1/tf/overview"


class Crowd:
    def __init__(self, port: int, pause: float) -> None:
        self.port, self.pause = port, pause
        self.answers = self.failures = 0

    async def client(self, ready: asyncio.Event) -> None:
        while True:
            try:
                await self._session(ready)
            except (OSError, asyncio.IncompleteReadError):
                self.failures += 1
                await asyncio.sleep(0.1)

    async def _session(self, ready: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            while True:
                writer.write(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(lengths[0].split(b":")[1]))
                self.answers += 1
                ready.set()
                await asyncio.sleep(self.pause)
        finally:
            writer.close()


async def main(port: int, clients: int, pause: float) -> None:
    crowd = Crowd(port, pause)
    ready = [asyncio.Event() for _ in range(clients)]
    tasks = [asyncio.create_task(crowd.client(event)) for event in ready]
    for event in ready:
        await event.wait()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()
    print(crowd.answers, crowd.failures, flush=True)


if __name__ == "__main__":
    os.nice(19)  # clients have machines of their own
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
