"""The permissions that a role needs with this client (row W5)."""

from jetspark.jetstream.acl.permissions import Permissions, Responses
from jetspark.jetstream.acl.roles import Roles

__all__ = ["Permissions", "Responses", "Roles"]
