"""The permissions that a user needs for a role with this client."""

from jetspark.jetstream.acl.permissions import Permissions, Responses
from jetspark.jetstream.acl.roles import Roles

__all__ = ["Permissions", "Responses", "Roles"]
