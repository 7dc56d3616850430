"""Two tenants of one pool, each with an objective: prices that are due within 200 ms, and statistics without any hurry.

``python examples/two_tenants.py`` starts Spark with two workers, runs both for some seconds, and prints what came of the
objectives, such as

    prices (trading): finished, 3 results, 100% within 200 ms, wanted are 95%
    statistics (research): finished, 4 results, 100% within 10000 ms, wanted are 99%

``dirigo run examples/two_tenants.py`` runs both too, and shows more figures. After ``dirigo cluster start``,
``dirigo submit examples/two_tenants.py --flow prices``, and the same with ``statistics``, have them join the other jobs of a
pool that stays.
"""

import dirigo as dg


def prices() -> dg.Dataflow:
    """The highest bid of every second, played back in real time for three seconds."""
    flow = dg.Dataflow("prices", slo=dg.SLO(latency="200ms", target=0.95, weight=4), labels={"team": "trading"})
    bids = flow.source(dg.paced(dg.nexmark.bids(events=1_500, rate=500)))
    bids.window(dg.Tumbling("1s")).aggregate(highest=dg.max("price"), bids=dg.count()).sink(dg.to_spark())
    return flow


def statistics() -> dg.Dataflow:
    """The bids that came through each of the large channels, as fast as the pool has time for them."""
    flow = dg.Dataflow("statistics", slo=dg.SLO(latency="10s"), labels={"team": "research"})
    bids = flow.source(dg.nexmark.bids(events=100_000))
    large = bids.filter(~dg.col("channel").starts_with("channel-"))
    large.key_by("channel").aggregate(bids=dg.count(), bidders=dg.distinct("bidder")).sink(dg.to_spark())
    return flow


trading, research = prices(), statistics()

if __name__ == "__main__":
    with dg.Cluster(workers=2) as cluster:
        cluster.wait_ready()
        for job in [cluster.submit(flow) for flow in (trading, research)]:
            status = job.wait()
            satisfaction = status.metrics.satisfaction
            print(
                f"{status.name} ({status.labels['team']}): {status.state}, {len(list(job.results()))} results, "
                f"{satisfaction.results:.0%} within {status.latency_objective_ms} ms, wanted are {status.target:.0%}"
            )
