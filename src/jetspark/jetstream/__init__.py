"""JetStream over asyncio: streams, consumers, publishing."""
