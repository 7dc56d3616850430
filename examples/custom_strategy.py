"""A scheduling policy of one's own: the teams that share a pool take turns, however much each of them asks for.

Here a backfill has twice as much to do as the one worker can, and the dashboard of another team little. First in, first out
makes both late. ``python examples/custom_strategy.py`` needs no Spark: it runs them in the simulator, and prints

    fifo: dashboard 0% in time, backfill 0% in time
    Turns: dashboard 100% in time, backfill 0% in time

On Spark, in the folder of this file: ``dirigo run custom_strategy.py --workers 1 --strategy custom_strategy:Turns``. There a
source reads thousands of rows at once, not 50 as here, so the figures are others.
"""

from collections import deque

import dirigo as dg


class Turns(dg.Strategy):
    """A queue for each team; the teams that have something to do are served in turn."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[dg.RunnableMessage]] = {}

    def enqueue(self, context: dg.SchedulingContext, message: dg.RunnableMessage) -> None:
        team = context.job(message).labels["team"]
        self.queues.setdefault(team, deque()).append(message)

    def get_next_message(self, context: dg.SchedulingContext) -> dg.RunnableMessage | None:
        if not self.queues:
            return None
        team = next(iter(self.queues))
        queue = self.queues.pop(team)
        message = queue.popleft()
        if queue:
            self.queues[team] = queue  # behind all others
        return message


def counting(name: str, team: str, bids_per_s: int) -> dg.Dataflow:
    """Bids per auction and second; each bid is one millisecond of work."""
    flow = dg.Dataflow(name, slo=dg.SLO(latency="1s"), labels={"team": team}, combines_early=False)
    bids = flow.source(dg.nexmark.bids(events=5 * bids_per_s, rate=bids_per_s))
    bids.key_by("auction").window(dg.Tumbling("1s")).aggregate(bids=dg.count()).sink(dg.to_memory())
    flow.emulate("aggregate", per_row="1ms")
    return flow


dashboard = counting("dashboard", team="web", bids_per_s=200)
backfill = counting("backfill", team="data", bids_per_s=2_000)

if __name__ == "__main__":
    strategies: dict[str, str | Turns] = {"fifo": "fifo", "Turns": Turns()}
    for name, strategy in strategies.items():
        both = dg.testing.run([dashboard, backfill], strategy=strategy, rows_max=50)
        shares = [f"{flow.name} {flow.satisfaction.results:.0%} in time" for flow in both.flows.values()]
        print(f"{name}: {', '.join(shares)}")
