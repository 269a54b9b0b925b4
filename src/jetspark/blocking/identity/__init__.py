"""Authorization callouts without async: the twins of `jetspark.identity`."""

from jetspark.blocking.identity.callout import AuthCallout

__all__ = ["AuthCallout"]
