"""`jetspark acl`: the permissions that a role needs, for a nats-server's configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jetspark.acl import Permissions, Responses, Roles
from jetspark.cli import console
from jetspark.cli.flags import JsonOption, Repeated, Switch
from jetspark.errors import ConfigError
from jetspark.nearest import did_you_mean_or_list

# The names of roles on the command line, and the methods of `Roles`.
_ROLES = {
    name.replace("_", "-"): name
    for name, function in vars(Roles).items()
    if not name.startswith("_") and callable(function)
}
# The options of parameters that have another name.
_OPTIONS_BY_PARAMETER = {
    "streams": "stream",
    "subjects": "subject",
    "keys": "key",
    "kinds": "kind",
    "prefix": "event-prefix",
    "letters": "dead-letters",
}
# The options that NAMES of ROLE=NAMES are for; a role has one of them.
_OBJECT_OPTIONS = ("stream", "bucket", "service")
_CONNECTION_OPTIONS = ("inbox_prefix", "domain", "api_prefix")


def acl(
    *roles: str,
    stream: Repeated = None,
    subject: Repeated = None,
    consumer: str | None = None,
    deliver_subject: str | None = None,
    deliver_group: str | None = None,
    may_create: Switch = False,
    responses: Switch = False,
    exactly_once: Switch = False,
    prepare_stream: Switch = False,
    pattern: Switch = False,
    sole_reader: Switch = False,
    trim: Switch = False,
    interest_consumer: str | None = None,
    progress_consumer: str | None = None,
    quarantine: str | None = None,
    bucket: Repeated = None,
    key: Repeated = None,
    origin: str | None = None,
    kind: Repeated = None,
    event_prefix: str | None = None,
    dead_letters: str | None = None,
    remove_originals: Switch = False,
    service: Repeated = None,
    queue_group: str | None = None,
    service_prefix: str | None = None,
    account: str | None = None,
    inbox_prefix: str = "_INBOX",
    domain: str | None = None,
    api_prefix: str | None = None,
    json: JsonOption = False,
) -> None:
    """Print the permissions that a role needs, or that several roles need together.

    A role may name its streams or buckets, as in spark-source=ORDERS,RETURNS spark-sink=TOTALS;
    the others use those of --stream or --bucket. The command connects to no server: paste the block
    into the user's entry in the server's configuration.

    Args:
        roles: publisher, pull-reader, push-reader, ordered-reader, range-reader, stored-reader,
            spark-source, spark-sink, kv-reader, kv-writer, administrator, monitor, backup, restore,
            events, dead-letters, service, service-client, service-monitor, schema-registry,
            schema-reader, schema-writer, tracer, auth-callout, system-monitor, doctor. Without one:
            print the purpose of each role.
        stream: The stream; may be given again.
        subject: publisher, spark-sink: subject to publish to; dead-letters: subject to replay
            to; service, service-client: subject of an endpoint; tracer: subject of messages; may
            be given again.
        consumer: pull-reader, push-reader: the consumer. events: only those of this consumer.
        deliver_subject: push-reader: where the consumer delivers.
        deliver_group: push-reader: the queue group to join.
        may_create: pull-reader, push-reader: may create and change the consumer.
        responses: pull-reader, push-reader: permit acks with allow_responses instead of subjects.
        exactly_once: spark-sink: with guarantee exactly-once.
        prepare_stream: spark-sink: with exactly-once and prepareStream.
        pattern: spark-source: with streamPattern.
        sole_reader: spark-source: with soleReader, which removes messages from a work queue.
        trim: spark-source: with trim, which removes from the stream what the table has.
        interest_consumer: spark-source: the value of the option interestConsumer.
        progress_consumer: spark-source: the value of the option progressConsumer.
        quarantine: spark-source: the stream of --quarantine stream:NAME.
        bucket: kv-reader, kv-writer, schema-registry: the bucket; may be given again.
        key: kv-writer: only keys under this filter; may be given again.
        origin: kv-writer: the bucket behind a mirror.
        kind: events: only events of this kind; may be given again.
        event_prefix: events: prefix under which another account's events are imported.
        dead_letters: dead-letters: the name of the dead letters.
        remove_originals: dead-letters: for a worker with --remove-originals.
        service: service, service-monitor: the service; may be given again.
        queue_group: service: listen as a member of this queue group only; auth-callout: the
            queue group of the instances.
        service_prefix: service-monitor: prefix under which another account's services are
            imported.
        account: system-monitor: only this account.
        inbox_prefix: Prefix of reply subjects, the same as the connection option of this name.
        domain: The JetStream domain.
        api_prefix: The JetStream API prefix, instead of a domain.
    """
    _print(permissions_of(locals()), as_json=json)


def _print(permissions: Permissions | None, *, as_json: bool) -> None:
    """Print permissions, as JSON or as a block of a nats-server's configuration.

    For None, print the purpose of each role that `jetspark acl` knows.
    """
    if permissions is None:
        # The first line of the docstring of a role's method is the role's purpose.
        docs = {role: inspect.getdoc(getattr(Roles, name)) for role, name in _ROLES.items()}
        console.say(*(f"{role:16}{str(doc).splitlines()[0]}" for role, doc in docs.items()))
    else:
        console.say(permissions.to_json() if as_json else permissions.to_config())


def permissions_of(flags: Mapping[str, Any]) -> Permissions | None:
    """Compute the permissions that a command line of `jetspark acl` asks for; None without a role.

    `flags`: the arguments of the function `acl` by parameter. Each of `flags["roles"]` is a method
    of `Roles`, and takes those of the other flags that are its parameters. Raises ConfigError for
    an unknown role, for a missing flag that a role needs, and for a flag that no role takes.
    """
    roles = Roles(**{name: flags[name] for name in _CONNECTION_OPTIONS})
    options = {  # the flags that were given
        name.replace("_", "-"): value
        for name, value in flags.items()
        if name not in ("roles", "json", *_CONNECTION_OPTIONS) and value not in (None, False)
    }
    if flags["responses"]:
        options["responses"] = Responses()
    if not flags["roles"]:
        if options:
            raise ConfigError("Name a role; `jetspark acl` alone prints what each is for.")
        return None
    permissions, unused = Permissions(), set(options)
    for text in flags["roles"]:
        role, equals, names = text.partition("=")
        if role not in _ROLES:
            raise ConfigError(f"There is no role {role!r}{did_you_mean_or_list(role, _ROLES)}")
        method = getattr(roles, _ROLES[role])
        role_options = _options_by_parameter(method)
        accepted, values = set(role_options.values()), dict(options)
        if equals:  # ROLE=NAMES: the names in place of --stream, --bucket or --service
            option = next((option for option in _OBJECT_OPTIONS if option in accepted), None)
            if option is None:
                raise ConfigError(f"{role} takes no stream, bucket or service: write only {role}.")
            values[option] = [name.strip() for name in names.split(",")]
            if not all(values[option]):
                raise ConfigError(f"{text!r}: write ROLE=STREAM, several with commas.")
            accepted.remove(option)  # the flag itself has no use here, only for other roles
        for arguments in _list_arguments(role, method, role_options, values):
            permissions |= method(**arguments)
        unused -= accepted
    if unused:
        raise ConfigError(f"{' and '.join(flags['roles'])} takes no --{min(unused)}.")
    return permissions


def _options_by_parameter(method: Callable[..., Permissions]) -> dict[str, str]:
    """Map each parameter of a role's method (of `Roles`) to its flag of `jetspark acl`.

    The flags are without their dashes, as `dead-letters`.
    """
    return {
        name: _OPTIONS_BY_PARAMETER.get(name, name.replace("_", "-"))
        for name in inspect.signature(method).parameters
    }


def _list_arguments(
    role: str,
    method: Callable[..., Permissions],
    role_options: Mapping[str, str],
    values: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The keyword arguments of each call of a role's method, one for each stream or other object.

    The method grants the permissions of one stream, bucket or service, of which the user may name
    several. `role_options`: the flag of each parameter of the method; `values`: the values of the
    flags that the user gave. Raises ConfigError for a required flag that is missing.
    """
    parameters = inspect.signature(method).parameters
    for name, option in role_options.items():
        if option not in values and parameters[name].default is inspect.Parameter.empty:
            raise ConfigError(f"{role} needs --{option}.")
    arguments = {name: values[option] for name, option in role_options.items() if option in values}
    # A parameter `stream` takes one name of the list; `streams` takes all of them in one call.
    for name in _OBJECT_OPTIONS:
        if name in arguments:
            return [arguments | {name: value} for value in arguments[name]]
    return [arguments]
