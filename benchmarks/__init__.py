"""Programs that measure jetspark against others on a real nats-server: `python -m benchmarks -h`.

How a run goes: the parent starts a server and fills streams (`stage`), then runs each contestant
that the command line chooses (`race`) in a process of its own, in turn (`turns`, `contestant`); a
contestant warms up, measures itself (`trial`, `measure`) and says so in one JSON line; the parent
makes medians of it (`report`). A suite is one file in `suites/`.

What a contestant imports at the top needs nothing but the standard library, so that it can run
under another Python than the harness.
"""
