"""TLS: trust an authority, show a certificate; a server that cannot be trusted is refused.

$ python examples/tls.py tls://localhost:4222 ca.pem [client.pem client.key]
connected by TLS
refused without the authority: TLSError
"""

import asyncio
import sys

import jetspark


async def main(server: str, ca: str, cert: str | None = None, key: str | None = None) -> None:
    async with jetspark.connect(server, tls_ca_file=ca, tls_cert_file=cert, tls_key_file=key) as nc:
        await nc.flush()
        print("connected by TLS")
    try:
        async with jetspark.connect(server, tls=True, tls_cert_file=cert, tls_key_file=key):
            pass
    except jetspark.ConnectionFailure as error:
        print("refused without the authority:", type(error).__name__)


asyncio.run(main(*sys.argv[1:]))
