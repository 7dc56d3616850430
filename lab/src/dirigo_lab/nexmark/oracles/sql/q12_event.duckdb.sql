-- Per bidder and window of 10 s, the number of bids.
SELECT
    bidder, COUNT(*) AS bid_count,
    time_bucket(INTERVAL 10 SECONDS, date_time, TIMESTAMPTZ '1970-01-01 00:00:00+00') AS window_start,
    window_start + INTERVAL 10 SECONDS AS window_end
FROM bid
GROUP BY bidder, window_start
