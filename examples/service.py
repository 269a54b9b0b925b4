"""A service: typed requests, errors, discovery, statistics.

$ python examples/service.py [server]
the total is 4.5
refused: 404 no such customer
found orders-example 1.0.0 with total, history
total: 2 requests, 1 error, the last one 404:no such customer
"""

import asyncio
import sys

import msgspec

import jetspark
from jetspark.services import Request


class Order(msgspec.Struct):
    customer: str
    prices: list[float]


async def total(request: Request) -> None:
    order = request.json(Order)
    if order.customer == "nobody":
        raise jetspark.ServiceError(404, "no such customer")
    await request.respond_json(sum(order.prices))


async def main(server: str) -> None:
    async with (
        jetspark.connect(server) as nc,
        await nc.add_service("orders-example", "1.0.0", description="Adds up") as service,
    ):
        orders = service.add_group("example.orders")
        await orders.add_endpoint("total", total, concurrency=10)

        @orders.endpoint(subject="history.*")
        async def history(request: Request) -> None:
            await request.respond(request.subject.encode())

        services = nc.services()
        order = Order("Ada", [1.5, 3])
        print("the total is", await services.request_json("example.orders.total", order))
        try:
            await services.request_json("example.orders.total", Order("nobody", []))
        except jetspark.ServiceError as error:
            print("refused:", error.code, error.description)

        async for info in services.info("orders-example"):
            names = ", ".join(endpoint.name for endpoint in info.endpoints)
            print("found", info.name, info.version, "with", names)
        async for stats in services.stats("orders-example", service.id):
            first = stats.endpoints[0]
            counts = f"{first.num_requests} requests, {first.num_errors} error"
            print(f"{first.name}: {counts}, the last one {first.last_error}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
