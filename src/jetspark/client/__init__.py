"""Core NATS over asyncio."""
