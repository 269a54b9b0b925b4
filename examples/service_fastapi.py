"""A service inside a FastAPI application: one event loop, and both end together.

$ python examples/service_fastapi.py [server]
over NATS: 4.5
over HTTP: 4.5
over HTTP, by the service: 4.5

`uvicorn` or any other server runs `make_app(…)`; this program asks the application itself.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request

import jetspark
from jetspark import services


async def total(prices: list[float]) -> float:
    """What both offer."""
    return sum(prices)


async def answer(request: services.Request) -> None:
    await request.respond_json(await total(request.json(list[float])))


def make_app(server: str) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with (
            jetspark.connect(server) as nc,
            await nc.add_service("totals-example", "1.0.0") as service,
        ):
            await service.add_endpoint("total", answer, subject="example.total", concurrency=20)
            app.state.nats = nc
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/total")
    async def over_http(prices: list[float]) -> float:
        return await total(prices)

    @app.post("/total-by-service")
    async def by_service(prices: list[float], request: Request) -> float:
        nats: jetspark.Client = request.app.state.nats
        answer: float = await nats.services().request_json("example.total", prices, type=float)
        return answer

    return app


async def main(server: str) -> None:
    app = make_app(server)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://example") as http,
        jetspark.connect(server) as nc,
    ):
        print("over NATS:", await nc.services().request_json("example.total", [1.5, 3]))
        print("over HTTP:", (await http.post("/total", json=[1.5, 3])).json())
        reply = await http.post("/total-by-service", json=[1.5, 3])
        print("over HTTP, by the service:", reply.json())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
