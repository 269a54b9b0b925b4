"""All commands, in the order of their help, each with its summary and examples."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """`function` as "module:name": imported when it is called. Examples of a group of commands
    are in its module."""

    function: str
    line: str
    examples: tuple[str, ...] = ()


COMMANDS = {
    "demo": Command(
        "jetspark.cli.demo:demo",
        "Run the whole path on real data, with a server of its own.",
        ("jetspark demo", "jetspark demo --to flights"),
    ),
    "ingest": Command(
        "jetspark.cli.ingest:ingest",
        "Turn a stream into a table.",
        (
            "jetspark ingest ORDERS --to lake/orders --server nats://host:4222",
            'jetspark ingest ORDERS --to lake/eu --subjects "orders.eu.>" --start -7d',
            'jetspark ingest ORDERS --to lake/orders --json "id STRING, amount DOUBLE"',
            "jetspark ingest ORDERS --to days --partition-by day --format iceberg --follow",
        ),
    ),
    "run": Command(
        "jetspark.cli.run:run",
        "Run a pipeline from a file.",
        (
            "jetspark run orders.toml --check",
            "jetspark run orders.toml --follow",
            "jetspark run orders.toml --master spark://host:7077 --quiet",
        ),
    ),
    "replay": Command(
        "jetspark.cli.replay:replay",
        "Turn a table into messages of a stream.",
        (
            "jetspark replay lake/orders --to COPY --subject \"concat('copy.', region)\"",
            'jetspark replay lake/orders --to COPY --rows "seq >= 1000" --order-by seq',
            "jetspark replay lake --to COPY --guarantee exactly-once --transaction-id 7",
        ),
    ),
    "table": Command(
        "jetspark.cli.table:table",
        "Show Delta and Iceberg tables, compact them, remove old files.",
    ),
    "server": Command(
        "jetspark.cli.server:server",
        "Run a nats-server with JetStream on this machine.",
        ("jetspark server", "jetspark server --store data --port 4333 --log"),
    ),
    "stream": Command(
        "jetspark.cli.stream:stream",
        "Show, create, purge and remove streams; back them up and restore them.",
    ),
    "backup": Command(
        "jetspark.cli.backup:backup",
        "Show what a stream's backup holds, and extract messages, without a server.",
    ),
    "consumer": Command(
        "jetspark.cli.consumer:consumer",
        "Show a stream's consumers.",
    ),
    "group": Command(
        "jetspark.cli.group:group",
        "Show the consumer groups of a stream, their members and partitions.",
    ),
    "dead-letters": Command(
        "jetspark.cli.dead_letters:dead_letters",
        "Keep the messages that consumers give up, and replay them.",
    ),
    "service": Command(
        "jetspark.cli.service:service",
        "Find services, look at them, and call them.",
    ),
    "pub": Command(
        "jetspark.cli.pub:pub",
        "Publish a message.",
        (
            "jetspark pub orders.eu '{\"id\": 1}' -H trace:abc",
            "jetspark pub orders.eu --stdin < order.json",
        ),
    ),
    "sub": Command(
        "jetspark.cli.sub:sub",
        "Show messages as they arrive.",
        ('jetspark sub "orders.>"', 'jetspark sub "orders.>" --count 10 --json'),
    ),
    "request": Command(
        "jetspark.cli.request:request",
        "Send a request and show the reply.",
        ("jetspark request price.eu 42 --timeout 0.5", "jetspark request ping --count 0"),
    ),
    "trace": Command(
        "jetspark.cli.trace:trace",
        "Show the path of a message through servers, accounts and streams.",
        ("jetspark trace orders.eu", "jetspark trace orders.eu '{\"id\": 1}' --deliver --json"),
    ),
    "events": Command(
        "jetspark.cli.events:events",
        "Show JetStream's advisories, metrics and API audits.",
        ("jetspark events", "jetspark events --stream ORDERS --kind max_deliver --json"),
    ),
    "acl": Command(
        "jetspark.cli.acl:acl",
        "Print the permissions that a role needs.",
        (
            "jetspark acl",
            'jetspark acl publisher --subject "orders.>"',
            "jetspark acl spark-source=ORDERS,RETURNS spark-sink=SUMS --subject sums",
        ),
    ),
    "warm-up": Command(
        "jetspark.cli.warm_up:warm_up",
        "Make Spark start faster on this machine, or in an image.",
        ("jetspark warm-up", "jetspark warm-up --remove"),
    ),
    "completion": Command(
        "jetspark.cli.completion:completion",
        "Print a script that completes commands and options in a shell.",
        (
            "source <(jetspark completion bash)",
            "jetspark completion zsh > ~/.zfunc/_jetspark",
            "jetspark completion fish > ~/.config/fish/completions/jetspark.fish",
        ),
    ),
}


def examples(*lines: str) -> str:
    """The examples below a command's options in its help."""
    return "\n".join(["Examples:", "```", *lines, "```"])
