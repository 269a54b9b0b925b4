"""An object store: files of any size in a stream, in chunks, checked when they are read.

$ python examples/object_store.py [server]
stored: picture.bin, 300000 bytes in 3 chunks
read back, equal: True
listed: ['picture.bin', 'readme.txt']
no such object: picture.bin
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import jetspark
from jetspark.errors import ObjectNotFoundError


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        store = await js.create_object_store("FILES", storage="memory")
        content = bytes(range(250)) * 1200
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "picture.bin", Path(folder) / "copy.bin"
            source.write_bytes(content)
            info = await store.put("picture.bin", source)
            print(f"stored: {info.name}, {info.size} bytes in {info.chunks} chunks")
            await store.get_into("picture.bin", target)
            print("read back, equal:", target.read_bytes() == content)
        await store.put("readme.txt", b"a small one", description="bytes will do")
        print("listed:", sorted([found.name async for found in store.objects()]))
        await store.delete("picture.bin")
        try:
            await store.get("picture.bin")
        except ObjectNotFoundError:
            print("no such object: picture.bin")
        await js.delete_object_store("FILES")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
